// Files and models that must be refused, by name, with the session and the old file unharmed.
#include <csignal>
#include <set>

#include <sys/resource.h>

#include "tests/abi/changed_files.h"

using namespace abi_test;

TEST_CASE(
    "stasis_session_load: one changed weight bit: refused, and the element and layer are named") {
    const Folder folder;
    const Session session = session_of(gemma(), some_tokens(40));
    REQUIRE(save(session.get(), folder.file("a")) == STASIS_OK);
    const std::string path = copy_model(folder, "zoo/gemma3-text");
    const std::string file = path + "/model.safetensors";
    const std::string bytes = read_file(file);
    const struct {
        const char *tensor, *element, *where;
    } cases[] = {
        {"model.layers.3.self_attn.q_proj.weight", "attention module weights differ", "layer 3"},
        {"model.layers.6.mlp.up_proj.weight", "differ", "layer 6"},
        {"model.embed_tokens.weight", "token embeddings differ", ""},
        {"model.norm.weight", "LayerNorm", ""},
    };
    for (const auto &item : cases) {
        std::string changed = bytes;
        changed[tensor_offset(bytes, item.tensor)] ^= 1;
        write_file(file, changed);
        const Model model = open_path(path);
        stasis_error error;
        CHECK(try_load(model.get(), folder.file("a"), error) == STASIS_MODEL_MISMATCH);
        CHECK_MESSAGE(contains(error, item.element), error.message);
        CHECK_MESSAGE(contains(error, item.where), error.message);
        auto report = sized<stasis_verify_report>();
        CHECK(stasis_snapshot_verify(open_snapshot(folder.file("a")).get(), model.get(), nullptr,
                                     &report, &error) == STASIS_MODEL_MISMATCH);
    }
    write_file(file, bytes);
    CHECK(digest(load(open_path(path).get(), folder.file("a")).get()) == digest(session.get()));
    stasis_error error;
    CHECK(try_load(llama(), folder.file("a"), error) == STASIS_MODEL_MISMATCH);
}

TEST_CASE("stasis_session_load: another tokenizer: refused by name") {
    const Folder folder;
    const Session session = session_of(shared_model("recall-gemma3"), some_tokens(20));
    REQUIRE(save(session.get(), folder.file("a")) == STASIS_OK);
    const std::string path = copy_model(folder, "recall-gemma3");
    // A field that no reader knows (number 2047, varint 1) changes the file and nothing else.
    write_file(path + "/tokenizer.model",
               read_file(path + "/tokenizer.model") + std::string("\xF8\x7F\x01", 3));
    const Model model = open_path(path);
    stasis_error error;
    CHECK(try_load(model.get(), folder.file("a"), error) == STASIS_MODEL_MISMATCH);
    CHECK_MESSAGE(contains(error, "tokenizer"), error.message);
}

TEST_CASE("stasis_session_load: a damaged file is refused, and running sessions do not notice") {
    const Folder folder;
    const Session session = session_of(gemma(), some_tokens(100));
    const Digest before = digest(session.get());
    const std::string path = folder.file("a"), damaged = folder.file("damaged");
    REQUIRE(save(session.get(), path) == STASIS_OK);
    const std::string bytes = read_file(path);
    std::set<stasis_status> seen;
    for (size_t at = 0; at < bytes.size(); at += 997) {
        std::string changed = bytes;
        changed[at] = static_cast<char>(changed[at] ^ (1 << (at % 8)));
        write_file(damaged, changed);
        stasis_error error;
        const stasis_status status = try_load(gemma(), damaged, error);
        if (at >= 8192 && at < 12288) { // root slot B, which no commit has used: A says the state
            CHECK_MESSAGE(status == STASIS_OK, "byte ", at);
            continue;
        }
        CHECK_MESSAGE(status != STASIS_OK, "byte ", at);
        CHECK(error.message[0] != '\0');
        seen.insert(status);
    }
    for (size_t length = 0; length < bytes.size(); length += 4999) {
        write_file(damaged, bytes.substr(0, length));
        stasis_error error;
        const stasis_status status = try_load(gemma(), damaged, error);
        CHECK_MESSAGE(status != STASIS_OK, "length ", length);
        seen.insert(status);
    }
    for (const stasis_status status : seen) {
        CHECK_MESSAGE((status == STASIS_CORRUPT || status == STASIS_VERSION), status);
    }
    CHECK(seen.count(STASIS_CORRUPT) == 1);
    CHECK(digest(session.get()) == before);
    auto stats = sized<stasis_model_stats>();
    REQUIRE(stasis_model_get_stats(gemma(), &stats, nullptr) == STASIS_OK);
    auto info = sized<stasis_session_info>();
    REQUIRE(stasis_session_get_info(session.get(), &info, nullptr) == STASIS_OK);
    CHECK(stats.kv_used_bytes == info.kv_bytes); // refused files hold nothing
}

TEST_CASE("stasis_session_save: places that cannot be written: IO, and the session goes on") {
    const Folder folder;
    const Session session = session_of(gemma(), some_tokens(10));
    const Digest before = digest(session.get());
    write_file(folder.file("plain"), "x");
    for (const std::string &path : {folder.file("none") + "/a", folder.file("plain") + "/a",
                                    std::string("/proc/a"), folder.file(std::string(300, 'n'))}) {
        stasis_error error;
        CHECK_MESSAGE(save(session.get(), path, 0, &error) == STASIS_IO, path);
        CHECK(error.message[0] != '\0');
    }
    CHECK(save(session.get(), folder.file("."), STASIS_SAVE_REPLACE) != STASIS_OK); // a directory
    CHECK(digest(session.get()) == before);
}

TEST_CASE("stasis_session_save: a full disk: IO, the old file whole, no leftovers") {
    const Folder folder;
    const std::string path = folder.file("a");
    const Session session = session_of(gemma(), some_tokens(10));
    REQUIRE(save(session.get(), path) == STASIS_OK);
    const std::string old = read_file(path);
    append(session.get(), some_tokens(300, 2));
    const Digest before = digest(session.get());
    // A limit on the size of files fails a write in its middle, as a full disk does.
    rlimit saved{};
    REQUIRE(getrlimit(RLIMIT_FSIZE, &saved) == 0);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    for (const rlim_t limit : {0U, 100U, 5000U, 20000U}) {
        const rlimit small{limit, saved.rlim_max};
        setrlimit(RLIMIT_FSIZE, &small);
        stasis_error error;
        const stasis_status status = save(session.get(), path, 0, &error);
        setrlimit(RLIMIT_FSIZE, &saved);
        CHECK_MESSAGE(status == STASIS_IO, error.message);
    }
    std::signal(SIGXFSZ, handler);
    CHECK(read_file(path) == old);
    const std::filesystem::directory_iterator entries(std::filesystem::path(path).parent_path());
    CHECK(std::distance(begin(entries), end(entries)) == 1);
    CHECK(digest(session.get()) == before);
    REQUIRE(save(session.get(), path) == STASIS_OK);
    CHECK(digest(load(gemma(), path).get()) == before);
}

TEST_CASE("stasis_snapshot_verify: verify finds a forged log that the file itself vouches for") {
    const Folder folder;
    const Session session = session_of(gemma(), some_tokens(90));
    stasis_token drawn = 0;
    for (int i = 0; i < 9; ++i) {
        REQUIRE(stasis_session_decode(session.get(), &drawn, nullptr) == STASIS_OK);
    }
    REQUIRE(save(session.get(), folder.file("a")) == STASIS_OK);
    forge_state(folder.file("a"), folder.file("forged"),
                [&](stasis::State &state) { state.log.back().token = (drawn + 1) % 192; });
    CHECK(position(load(gemma(), folder.file("forged")).get()) == 99); // nothing to see
    const Snapshot forged = open_snapshot(folder.file("forged"));
    auto report = sized<stasis_verify_report>();
    stasis_error error;
    CHECK(stasis_snapshot_verify(forged.get(), gemma(), nullptr, &report, &error) ==
          STASIS_DIVERGED);
    CHECK(report.verified == 0);
    CHECK(report.positions == 99);
    CHECK(report.position == 98);
    CHECK(report.element == 4);
    CHECK(report.layer == STASIS_NOWHERE);
    CHECK(contains(error, report.message));
}
