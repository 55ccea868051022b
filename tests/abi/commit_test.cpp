// Saving again to the same file: after append, decode, fork, rewind, at the edges of a window,
// under other codecs; and what such a file then says of itself.
#include "tests/abi/changed_files.h"

using namespace abi_test;

namespace {

// Saves, and what is loaded in turn continues as the session itself does.
void check_saved(stasis_session *session, const std::string &path,
                 uint32_t codec = STASIS_CODEC_RAW) {
    REQUIRE(save_as(session, path, codec) == STASIS_OK);
    const Session loaded = load(gemma(), path);
    CHECK(digest(loaded.get()) == digest(session));
    const Session own = fork(session);
    for (stasis_session *both : {loaded.get(), own.get()}) {
        append(both, some_tokens(5, 11));
        draw(both, 2);
    }
    CHECK(digest(loaded.get()) == digest(own.get()));
}

} // namespace

TEST_CASE(
    "stasis_session_save: one file takes a session's whole life, and continues it bit for bit") {
    const Folder folder;
    const std::string path = folder.file("a");
    const Session session = session_of(gemma(), some_tokens(90));
    check_saved(session.get(), path);
    append(session.get(), some_tokens(100, 2));
    check_saved(session.get(), path, STASIS_CODEC_ZSTD);
    draw(session.get(), 7);
    check_saved(session.get(), path);
    const Session child = fork(session.get());
    append(child.get(), some_tokens(40, 3));
    check_saved(child.get(), path);
    check_saved(session.get(), path); // a shorter one again
    rewind(session.get(), 100);
    check_saved(session.get(), path);
    append(session.get(), some_tokens(60, 4));
    check_saved(session.get(), path, STASIS_CODEC_ZSTD);
    rewind(session.get(), 0);
    REQUIRE(save(session.get(), path) == STASIS_OK);
    CHECK(position(load(gemma(), path).get()) == 0);
    append(session.get(), some_tokens(90));
    check_saved(session.get(), path);
    CHECK(snapshot_info(path).commits == 9);
}

TEST_CASE("stasis_session_save: past the window: saved at its edges and far behind, it goes on as "
          "if it never had") {
    auto info = sized<stasis_session_info>();
    REQUIRE(stasis_session_get_info(create(gemma()).get(), &info, nullptr) == STASIS_OK);
    const uint64_t window = info.window;
    REQUIRE(window > 1);
    for (const uint64_t retain : {uint64_t{0}, STASIS_WINDOW_RETAIN_NONE}) {
        const Folder folder;
        const Session session = create(gemma(), 0, retain);
        for (const uint64_t at : {window - 1, window, window + 1, 3 * window, 20 * window}) {
            append(session.get(),
                   some_tokens(at - position(session.get()), static_cast<uint32_t>(at)));
            check_saved(session.get(), folder.file("commits"));
            check_saved(session.get(), folder.file("raw" + std::to_string(at)));
            check_saved(session.get(), folder.file("zstd" + std::to_string(at)), STASIS_CODEC_ZSTD);
        }
    }
}

TEST_CASE("stasis_session_save: a commit costs what is new") {
    const Folder folder;
    const std::string path = folder.file("a");
    auto model = sized<stasis_model_info>();
    REQUIRE(stasis_model_get_info(gemma(), &model, nullptr) == STASIS_OK);
    const uint64_t token_bytes = uint64_t{model.layers} * 2 * model.kv_heads * model.head_dim * 2 +
                                 8; // keys, values, the entry of the log
    const Session session = session_of(gemma(), some_tokens(1000));
    REQUIRE(save(session.get(), path) == STASIS_OK);
    for (const size_t count : {1U, 1U, 7U, 60U, 64U, 500U}) {
        append(session.get(), some_tokens(count, static_cast<uint32_t>(count)));
        const uint64_t before = std::filesystem::file_size(path);
        REQUIRE(save(session.get(), path) == STASIS_OK);
        const uint64_t written = std::filesystem::file_size(path) - before;
        CHECK(static_cast<double>(written) <=
              1.10 * static_cast<double>(count * token_bytes) + 65536);
    }
}

TEST_CASE("stasis_session_save: a commit of a hybrid writes the new state and new checkpoints") {
    const Folder folder;
    const std::string path = folder.file("a");
    const Model hybrid = open_path(test_data("zoo/qwen3_5-moe"));
    auto model = sized<stasis_model_info>();
    REQUIRE(stasis_model_get_info(hybrid.get(), &model, nullptr) == STASIS_OK);
    const uint64_t attention =
        std::count(model.layer_recurrent, model.layer_recurrent + model.layers, 0);
    const uint64_t token_bytes = attention * 2 * model.kv_heads * model.head_dim * 2 + 8;
    Session session = session_of(hybrid.get(), some_tokens(600));
    REQUIRE(save(session.get(), path) == STASIS_OK);
    CHECK(info_of(session).states == 3); // at 256, 512 and 600
    for (const bool loaded : {false, true}) {
        for (const size_t count : {1U, 7U, 100U, 300U, 200U}) {
            CAPTURE(count);
            const uint64_t begin = position(session.get()), end = begin + count;
            append(session.get(), some_tokens(count, static_cast<uint32_t>(count)));
            const uint64_t before = std::filesystem::file_size(path);
            REQUIRE(save(session.get(), path) == STASIS_OK);
            const uint64_t written = std::filesystem::file_size(path) - before;
            const uint64_t states = end / 256 - begin / 256 + (end % 256 == 0 ? 0 : 1);
            CHECK(written >= states * model.state_bytes);
            CHECK(written <
                  states * model.state_bytes + count * token_bytes + model.state_bytes / 2);
            CHECK(digest(load(hybrid.get(), path).get()) == digest(session.get()));
        }
        session = load(hybrid.get(), path);
    }
}

TEST_CASE("stasis_session_save: codecs store fewer bytes or as many, and the file tells how many") {
    const Folder folder;
    const Session session = session_of(gemma(), some_tokens(300));
    REQUIRE(save_as(session.get(), folder.file("raw"), STASIS_CODEC_DEFAULT) == STASIS_OK);
    REQUIRE(save_as(session.get(), folder.file("zstd"), STASIS_CODEC_ZSTD) == STASIS_OK);
    const stasis_snapshot_info raw = snapshot_info(folder.file("raw"));
    const stasis_snapshot_info zstd = snapshot_info(folder.file("zstd"));
    CHECK(raw.codec == STASIS_CODEC_RAW);
    CHECK(raw.keep == STASIS_KEEP_FULL);
    CHECK(raw.commits == 1);
    CHECK(raw.flags == 0);
    CHECK(raw.kv_bytes > 0);
    CHECK(raw.kv_stored_bytes == raw.kv_bytes);
    CHECK(zstd.codec == STASIS_CODEC_ZSTD);
    CHECK(zstd.kv_bytes == raw.kv_bytes);
    CHECK(zstd.kv_stored_bytes < raw.kv_stored_bytes);
    CHECK(zstd.file_bytes < raw.file_bytes);
    CHECK(std::memcmp(zstd.digest.bytes, raw.digest.bytes, 32) == 0);
}

TEST_CASE("stasis_snapshot_compact: compact leaves the state and nothing else, under the codec "
          "that is asked for") {
    const Folder folder;
    const std::string path = folder.file("a");
    const Session session = session_of(gemma(), some_tokens(200));
    REQUIRE(save_as(session.get(), path, STASIS_CODEC_ZSTD) == STASIS_OK);
    for (uint32_t i = 0; i < 5; ++i) {
        rewind(session.get(), 100);
        append(session.get(), some_tokens(90, i));
        REQUIRE(save_as(session.get(), path, STASIS_CODEC_ZSTD) == STASIS_OK);
    }
    const Digest before = digest(session.get());
    uint64_t size = std::filesystem::file_size(path);
    auto options = sized<stasis_save_options>();
    for (const auto &[codec, result] : {std::pair{STASIS_CODEC_DEFAULT, STASIS_CODEC_ZSTD},
                                        {STASIS_CODEC_RAW, STASIS_CODEC_RAW},
                                        {STASIS_CODEC_DEFAULT, STASIS_CODEC_RAW},
                                        {STASIS_CODEC_ZSTD, STASIS_CODEC_ZSTD}}) {
        options.codec = codec;
        stasis_error error;
        const stasis_status status = stasis_snapshot_compact(path.c_str(), &options, &error);
        REQUIRE_MESSAGE(status == STASIS_OK, error.message);
        const stasis_snapshot_info info = snapshot_info(path);
        CHECK(info.codec == result);
        CHECK(info.commits == 1);
        CHECK(digest(load(gemma(), path).get()) == before);
        CHECK((std::filesystem::status(path).permissions() & std::filesystem::perms::all) ==
              (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
    }
    CHECK(std::filesystem::file_size(path) < size);
    append(session.get(), {1, 2, 3});
    check_saved(session.get(), path);
    REQUIRE(save_as(session.get(), folder.file("none"), 0, STASIS_KEEP_NONE) == STASIS_OK);
    REQUIRE(stasis_snapshot_compact(folder.file("none").c_str(), nullptr, nullptr) == STASIS_OK);
    CHECK(snapshot_info(folder.file("none")).keep == STASIS_KEEP_NONE);

    const Cancel cancel = make_cancel();
    stasis_cancel_request(cancel.get());
    options.cancel = cancel.get();
    const std::string bytes = read_file(path);
    CHECK(stasis_snapshot_compact(path.c_str(), &options, nullptr) == STASIS_CANCELLED);
    CHECK(stasis_snapshot_compact(folder.file("nothing").c_str(), nullptr, nullptr) ==
          STASIS_NOT_FOUND);
    write_file(folder.file("other"), "something else");
    CHECK(stasis_snapshot_compact(folder.file("other").c_str(), nullptr, nullptr) ==
          STASIS_CORRUPT);
    CHECK(read_file(folder.file("other")) == "something else");
    CHECK(read_file(path) == bytes);
}

TEST_CASE("stasis_session_save: a file that is refused leaves the running session and the file "
          "untouched") {
    const Folder folder;
    const std::string path = folder.file("a");
    const Session session = session_of(gemma(), some_tokens(100));
    REQUIRE(save(session.get(), path) == STASIS_OK);
    const Digest before = digest(session.get());
    const std::string whole = read_file(path);
    stasis_error error;
    for (size_t at = 12288; at < whole.size(); at += 911) { // any byte that the root reaches
        std::string bytes = whole;
        bytes[at] = static_cast<char>(bytes[at] ^ 64);
        write_file(path, bytes);
        CHECK_MESSAGE(try_load(gemma(), path, error) == STASIS_CORRUPT, at);
        CHECK(read_file(path) == bytes);
    }
    CHECK(digest(session.get()) == before);
    append(session.get(), {1, 2, 3});
    write_file(path, whole);
    check_saved(session.get(), path);
}
