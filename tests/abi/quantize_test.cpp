// Writing models as GGUF files through the public header: options, report, progress, cancelling,
// and what is refused.
#include "tests/abi/fixture.h"

using namespace abi_test;

namespace {

const std::string kQuantizeSource = test_data("recall-llama");

stasis_status quantize(const std::string &out, const stasis_quantize_options *options,
                       stasis_quantize_report *report = nullptr, stasis_error *error = nullptr) {
    return stasis_model_quantize(kQuantizeSource.c_str(), out.c_str(), options, report, error);
}

} // namespace

TEST_CASE("stasis_model_quantize: what is written opens, generates, and its sessions are saved and "
          "loaded") {
    const Folder folder;
    const std::string out = folder.file("m.gguf");
    auto options = sized<stasis_quantize_options>();
    options.type = "Q4_0";
    auto report = sized<stasis_quantize_report>();
    stasis_error error;
    REQUIRE_MESSAGE(quantize(out, &options, &report, &error) == STASIS_OK, error.message);
    CHECK(report.file_bytes == std::filesystem::file_size(out));
    CHECK(report.source_bytes == 3674368);
    REQUIRE(report.share_count == 3);
    CHECK(std::string(report.shares[0].type) == "Q4_0");
    CHECK(report.shares[0].tensors == 57);
    CHECK(report.shares[0].bytes == report.shares[0].values / 32 * 18);
    CHECK(std::string(report.shares[1].type) == "Q8_0"); // the head, with rows of 128
    CHECK(std::string(report.shares[2].type) == "F32");
    CHECK(report.shares[3].tensors == 0);

    const Model model = open_path(out);
    const Tokens tokens = some_tokens(50);
    const Session session = session_of(model.get(), tokens);
    REQUIRE(save(session.get(), folder.file("s")) == STASIS_OK);
    CHECK(digest(load(model.get(), folder.file("s")).get()) == digest(session.get()));
    stasis_session *other = nullptr;
    CHECK(stasis_session_load(shared_model("recall-llama"), folder.file("s").c_str(), nullptr,
                              &other, nullptr) == STASIS_MODEL_MISMATCH);
}

TEST_CASE("stasis_model_quantize: without options, and with those of another version") {
    const Folder folder;
    CHECK(quantize(folder.file("a"), nullptr) == STASIS_OK);
    auto report = sized<stasis_quantize_report>();
    report.struct_size = 24; // ends before the shares
    std::memset(&report.shares, 0xAB, sizeof report.shares);
    CHECK(quantize(folder.file("b"), nullptr, &report) == STASIS_OK);
    CHECK(report.share_count == 2);
    CHECK(report.shares[0].tensors == 0xABABABABABABABABU);
    CHECK(read_file(folder.file("a")) == read_file(folder.file("b")));

    stasis_quantize_options options;
    std::memset(&options, 0xAB, sizeof options);
    stasis_quantize_options_init(&options, sizeof options);
    CHECK(options.struct_size == sizeof options);
    CHECK(options.type == nullptr);
    CHECK((options.progress == nullptr));
    stasis_error error;
    options.flags = 2;
    CHECK(quantize(folder.file("c"), &options, nullptr, &error) == STASIS_UNSUPPORTED);
    options.flags = 0;
    options.reserved = 1;
    CHECK(quantize(folder.file("c"), &options, nullptr, &error) != STASIS_OK);
    options.reserved = 0;
    options.struct_size = 3;
    CHECK(quantize(folder.file("c"), &options, nullptr, &error) == STASIS_INVALID_ARGUMENT);
    report.struct_size = 3;
    CHECK(quantize(folder.file("c"), nullptr, &report, &error) == STASIS_INVALID_ARGUMENT);
    CHECK(!std::filesystem::exists(folder.file("c")));
}

TEST_CASE("stasis_model_quantize: refusals leave what was there") {
    const Folder folder;
    const std::string out = folder.file("m.gguf");
    CHECK(stasis_model_quantize(nullptr, out.c_str(), nullptr, nullptr, nullptr) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(stasis_model_quantize(kQuantizeSource.c_str(), nullptr, nullptr, nullptr, nullptr) ==
          STASIS_INVALID_ARGUMENT);
    auto options = sized<stasis_quantize_options>();
    stasis_error error;
    options.type = "IQ2_S";
    CHECK(quantize(out, &options, nullptr, &error) == STASIS_UNSUPPORTED);
    CHECK(contains(error, "\"IQ2_S\""));
    CHECK(contains(error, "Q5_K_M"));
    options.type = "Q6_K";
    CHECK(quantize(out, &options, nullptr, &error) == STASIS_OK);
    CHECK(std::string(error.message).empty());
    const std::string before = read_file(out);
    options.type = "Q5_1";
    CHECK(quantize(out, &options, nullptr, &error) == STASIS_INVALID_ARGUMENT);
    CHECK(contains(error, "there already"));
    CHECK(stasis_model_quantize(out.c_str(), folder.file("n").c_str(), nullptr, nullptr, &error) ==
          STASIS_UNSUPPORTED);
    CHECK(contains(error, "m.gguf"));
    CHECK(read_file(out) == before);
    options.flags = STASIS_QUANTIZE_REPLACE;
    CHECK(quantize(out, &options, nullptr, &error) == STASIS_OK);
    CHECK(read_file(out) != before);
}

TEST_CASE("stasis_model_quantize: progress, and a request to stop or to cancel") {
    const Folder folder;
    const std::string out = folder.file("m.gguf");
    struct Seen {
        uint64_t calls, done, total, most;
    } seen{0, 0, 0, UINT64_MAX};
    auto options = sized<stasis_quantize_options>();
    options.progress_user = &seen;
    options.progress = [](void *user, uint64_t done, uint64_t total) -> int32_t {
        auto &own = *static_cast<Seen *>(user);
        CHECK(done >= own.done);
        own.done = done;
        own.total = total;
        return ++own.calls > own.most ? 1 : 0;
    };
    const Cancel cancel = make_cancel();
    options.cancel = cancel.get();
    CHECK(quantize(out, &options) == STASIS_OK);
    CHECK(seen.calls > 10);
    CHECK(seen.done == seen.total);
    CHECK(seen.total == 3674368);
    std::filesystem::remove(out);
    seen = {0, 0, 0, 5};
    CHECK(quantize(out, &options) == STASIS_STOPPED);
    CHECK(!std::filesystem::exists(out));
    stasis_cancel_request(cancel.get());
    CHECK(quantize(out, &options) == STASIS_CANCELLED);
    CHECK(!std::filesystem::exists(out));
    CHECK(!std::filesystem::exists(out + ".writing"));
}
