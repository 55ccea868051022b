// Files that are refused beside a running session, for every kind of reason, other weights in the
// same shape among them: nothing of the session may change, nor of a file that was to be saved to.
#include "tests/abi/changed_files.h"
#include "tests/abi/restored.h"

using namespace abi_test;
using stasis::format::Bytes;

namespace {

// A running session beside which files are refused: nothing of it may change.
class Running {
  public:
    explicit Running(stasis_model *model)
        : model_(model), session_(session_of(model, some_tokens(300))),
          digest_(digest(session_.get())), next_(draw(fork(session_.get()).get(), 5)),
          used_(used()) {}

    stasis_session *get() const { return session_.get(); }

    void check_unchanged() const {
        CHECK(digest(session_.get()) == digest_);
        CHECK(draw(fork(session_.get()).get(), 5) == next_);
        CHECK(used() == used_);
    }

  private:
    uint64_t used() const {
        auto stats = sized<stasis_model_stats>();
        REQUIRE(stasis_model_get_stats(model_, &stats, nullptr) == STASIS_OK);
        return stats.kv_used_bytes;
    }

    stasis_model *model_;
    Session session_;
    Digest digest_;
    Tokens next_;
    uint64_t used_;
};

// The model with memory for one session of 300 tokens and some more.
Model small_model() {
    auto info = sized<stasis_session_info>();
    REQUIRE(stasis_session_get_info(session_of(llama(), some_tokens(300)).get(), &info, nullptr) ==
            STASIS_OK);
    auto options = sized<stasis_model_options>();
    options.kv_budget_bytes = 3 * info.kv_bytes;
    return open_path(test_data("zoo/llama-gqa-untied"), &options);
}

std::string text_of(const Bytes &bytes) {
    return {bytes.begin(), bytes.end()};
}

std::string with_version(std::string bytes, uint32_t version) {
    std::memcpy(bytes.data() + 8, &version, sizeof version);
    const stasis::format::Checksum sum = stasis::format::checksum(bytes.data(), 4080);
    std::memcpy(bytes.data() + 4080, &sum, sizeof sum);
    return bytes;
}

std::string with_feature(const std::string &bytes) {
    Bytes changed(bytes.begin(), bytes.end());
    stasis::format::Root root = stasis::format::read_root(changed);
    root.features_refuse = uint64_t{1} << 40;
    stasis::format::write_root(changed, root);
    return text_of(changed);
}

// Saved by a model of the same shape with one other bit in the weights of one layer's attention.
std::string of_other_weights(const Folder &folder) {
    const std::string path = copy_model(folder, "zoo/llama-gqa-untied");
    std::string weights = read_file(path + "/model.safetensors");
    weights[tensor_offset(weights, "model.layers.1.self_attn.v_proj.weight")] ^= 1;
    write_file(path + "/model.safetensors", weights);
    const Model model = open_path(path);
    REQUIRE(save(session_of(model.get(), some_tokens(90, 2)).get(), folder.file("other")) ==
            STASIS_OK);
    return folder.file("other");
}

} // namespace

TEST_CASE("stasis_session_load: a file that is refused, for whatever reason, leaves a running "
          "session untouched") {
    const Folder folder;
    const Model model = small_model();
    const Running running(model.get());
    const std::string good = folder.file("good"), bad = folder.file("bad");
    REQUIRE(save(session_of(llama(), some_tokens(90, 2)).get(), good) == STASIS_OK);
    const std::string whole = read_file(good);
    const Bytes bytes(whole.begin(), whole.end());
    const auto other_key = [](uint8_t *numbers) { numbers[0] ^= 1; };
    const auto full = [](stasis::State &state, stasis::format::Layout &) { state.capacity = 3; };
    const struct {
        const char *what, *words;
        std::string bytes;
        stasis_status expected;
    } files[] = {
        {"nothing", "", "", STASIS_CORRUPT},
        {"text", "", std::string(20000, 'x'), STASIS_CORRUPT},
        {"half a file", "", whole.substr(0, whole.size() / 2), STASIS_CORRUPT},
        {"a later version", "version 2", with_version(whole, 2), STASIS_VERSION},
        {"an unknown feature", "feature", with_feature(whole), STASIS_VERSION},
        {"a bit of the header", "", flipped(whole, 100), STASIS_CORRUPT},
        {"a bit of the only root", "", flipped(whole, 4096), STASIS_CORRUPT},
        {"a bit of the identity", "", flipped(whole, 12288 + 64 + 50), STASIS_CORRUPT},
        {"a bit of the manifest", "", flipped(whole, whole.size() - 200), STASIS_CORRUPT},
        {"a page that its checksum vouches for", "page 0",
         text_of(stasis::format::forged_run(bytes, 0, 0, other_key)), STASIS_CORRUPT},
        {"a capacity below the position", "capacity", text_of(stasis::format::forged(bytes, full)),
         STASIS_CORRUPT},
    };
    for (const auto &file : files) {
        CAPTURE(file.what);
        write_file(bad, file.bytes);
        stasis_error error;
        CHECK(try_load(model.get(), bad, error) == file.expected);
        CHECK_MESSAGE(contains(error, file.words), error.message);
        running.check_unchanged();
        CHECK(save(running.get(), bad) != STASIS_OK); // nor is a commit taken
        CHECK(read_file(bad) == file.bytes);
        running.check_unchanged();
    }
}

TEST_CASE("stasis_session_load: a file of another model, or one that cannot be had now, leaves it "
          "untouched") {
    const Folder folder;
    const Model model = small_model();
    const Running running(model.get());
    const std::string good = folder.file("good"), none = folder.file("none");
    const std::string long_one = folder.file("long"), foreign = folder.file("foreign");
    const Session session = session_of(llama(), some_tokens(90, 2));
    REQUIRE(save(session.get(), good) == STASIS_OK);
    REQUIRE(save(session_of(gemma(), some_tokens(90, 2)).get(), foreign) == STASIS_OK);
    REQUIRE(save(session_of(llama(), some_tokens(1500, 2)).get(), long_one) == STASIS_OK);
    stasis::format::SaveOptions without;
    without.keep = stasis::format::Keep::none;
    forge_state(
        good, none, [](stasis::State &state) { state.hidden[0] ^= 1; }, without);
    const Cancel cancelled = make_cancel();
    stasis_cancel_request(cancelled.get());
    auto session_options = sized<stasis_session_options>();
    session_options.capacity = 50;
    auto plain = sized<stasis_load_options>(), cancel = plain, stop = plain, small = plain;
    auto not_again = plain;
    cancel.cancel = cancelled.get();
    stop.progress = [](void *, uint64_t, uint64_t) -> int32_t { return 1; };
    small.session = &session_options;
    not_again.flags = STASIS_LOAD_NO_RECOMPUTE;
    const struct {
        std::string path;
        const stasis_load_options *options;
        stasis_status expected;
        const char *words;
    } loads[] = {
        {foreign, &plain, STASIS_MODEL_MISMATCH, ""},
        {of_other_weights(folder), &plain, STASIS_MODEL_MISMATCH,
         "attention module weights differ: layer 1"},
        {none, &plain, STASIS_DIVERGED, "hidden state"},
        {none, &not_again, STASIS_UNSUPPORTED, ""},
        {long_one, &plain, STASIS_POOL_EXHAUSTED, ""},
        {good, &small, STASIS_FULL, "50"},
        {good, &cancel, STASIS_CANCELLED, ""},
        {good, &stop, STASIS_STOPPED, ""},
        {folder.file("missing"), &plain, STASIS_NOT_FOUND, "missing"},
    };
    for (const auto &item : loads) {
        stasis_session *out = nullptr;
        stasis_error error;
        CHECK(stasis_session_load(model.get(), item.path.c_str(), item.options, &out, &error) ==
              item.expected);
        CHECK(out == nullptr);
        CHECK_MESSAGE(contains(error, item.words), error.message);
        running.check_unchanged();
    }
    for (const int64_t end : {int64_t{0}, int64_t{-5}}) { // a source that ends, that fails
        Memory memory{read_file(good).substr(0, 20000), 0, end};
        const stasis_source source = memory.source();
        stasis_session *out = nullptr;
        CHECK(stasis_session_read(model.get(), &source, nullptr, &out, nullptr) ==
              (end == 0 ? STASIS_CORRUPT : STASIS_IO));
        CHECK(out == nullptr);
        running.check_unchanged();
    }
    CHECK(digest(load(model.get(), good).get()) == digest(session.get())); // a good one is taken
    running.check_unchanged();
}
