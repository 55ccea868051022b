// A model of integer weights in a GGUF file, through the public interface: opened by its path, its
// sessions saved, loaded, verified and distinguished from another model's.
#include <chrono>

#include "tests/abi/fixture.h"
#include "tests/runtime/quantized_model.h"

using namespace abi_test;

TEST_CASE(
    "stasis_model_open: a GGUF file opens by its path; its sessions are saved, loaded, verified") {
    for (const auto &entry : stasis::test::quantized_models()) {
        const std::string path = stasis::test::quantized_model(entry.first);
        CAPTURE(path);
        const Model model = open_path(path);
        auto info = sized<stasis_model_info>();
        REQUIRE(stasis_model_get_info(model.get(), &info, nullptr) == STASIS_OK);
        CHECK(info.layers == 2);
        CHECK((info.flags & (STASIS_MODEL_CONVERTED | STASIS_MODEL_TOKENIZER)) == 0);
        const std::string types = info.weight_types;
        CHECK(types.find("Q6_K: ") != std::string::npos);
        CHECK(types.find("F32: ") != std::string::npos);
        CHECK(info.weight_bytes < std::filesystem::file_size(path));
        CHECK(info.weight_bytes > std::filesystem::file_size(path) - 4096);

        const Folder folder;
        const Session session = session_of(model.get(), some_tokens(150));
        const Digest before = digest(session.get());
        for (const uint32_t keep : {STASIS_KEEP_FULL, STASIS_KEEP_NONE}) {
            const std::string file = folder.file("s" + std::to_string(keep));
            REQUIRE(save_as(session.get(), file, STASIS_CODEC_ZSTD, keep) == STASIS_OK);
            // Opened again, with other threads and kernels.
            auto options = sized<stasis_model_options>();
            options.threads = 1;
            options.kernels = "reference";
            const Model again = open_path(path, &options);
            const Session loaded = load(again.get(), file);
            CHECK(digest(loaded.get()) == before);
            stasis_verify_report report = sized<stasis_verify_report>();
            REQUIRE(stasis_snapshot_verify(open_snapshot(file).get(), again.get(), nullptr, &report,
                                           nullptr) == STASIS_OK);
            append(loaded.get(), some_tokens(20, 3));
            const Session other = fork(session.get());
            append(other.get(), some_tokens(20, 3));
            CHECK(digest(loaded.get()) == digest(other.get()));
        }
    }
}

TEST_CASE("stasis_session_load: a session of a GGUF model is refused by one with a bit of its "
          "integers changed") {
    const std::string path = stasis::test::quantized_model("quantized/llama");
    const Folder folder;
    std::string bytes = read_file(path);
    const size_t in_head = bytes.size() - 100;
    bytes[in_head] = static_cast<char>(bytes[in_head] ^ 1);
    write_file(folder.file("other.gguf"), bytes);
    const Model model = open_path(path), other = open_path(folder.file("other.gguf"));
    const Session session = session_of(model.get(), some_tokens(10));
    REQUIRE(save(session.get(), folder.file("s")) == STASIS_OK);
    stasis_session *loaded = nullptr;
    stasis_error error;
    CHECK(stasis_session_load(other.get(), folder.file("s").c_str(), nullptr, &loaded, &error) ==
          STASIS_MODEL_MISMATCH);
    CHECK(contains(error, "head"));
}

TEST_CASE("stasis_session_append: a GGUF file that was changed while open is noticed") {
    const Folder folder;
    const std::string path = folder.file("model.gguf");
    std::filesystem::copy_file(stasis::test::quantized_model("quantized/llama"), path);
    const Model model = open_path(path);
    const Session session = session_of(model.get(), some_tokens(10));
    const auto time = std::filesystem::last_write_time(path);
    std::filesystem::last_write_time(path, time + std::chrono::seconds(1));
    stasis_error error;
    const Tokens tokens = some_tokens(2);
    CHECK(stasis_session_append(session.get(), tokens.data(), tokens.size(), nullptr, &error) ==
          STASIS_IO);
    CHECK(contains(error, "model.gguf"));
    std::filesystem::last_write_time(path, time);
    append(session.get(), tokens);
}
