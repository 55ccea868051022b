// Evictions through the public interface: files, other processes' files, verification, refusals.
#include "tests/abi/changed_files.h"

using namespace abi_test;

namespace {

stasis_status evict(stasis_session *session, uint64_t begin, uint64_t end,
                    stasis_error *error = nullptr) {
    return stasis_session_evict(session, begin, end, error);
}

Session evicted_session(stasis_model *model) {
    Session session = session_of(model, some_tokens(150));
    REQUIRE(evict(session.get(), 5, 80) == STASIS_OK);
    append(session.get(), some_tokens(50, 2));
    REQUIRE(evict(session.get(), 0, 128) == STASIS_OK);
    append(session.get(), some_tokens(7, 3));
    return session;
}

} // namespace

TEST_CASE("stasis_session_evict: sessions are saved, loaded, recomputed and verified with it") {
    for (stasis_model *model : {gemma(), llama()}) {
        const Folder folder;
        const Session session = evicted_session(model);
        CHECK(info_of(session.get()).positions_evicted == 128);
        CHECK(info_of(session.get()).rewind_floor >= 200);
        for (const uint32_t keep : {STASIS_KEEP_FULL, STASIS_KEEP_NONE}) {
            const std::string path = folder.file(std::to_string(keep));
            REQUIRE(save_as(session.get(), path, STASIS_CODEC_ZSTD, keep) == STASIS_OK);
            const Session loaded = load(model, path);
            CHECK(digest(loaded.get()) == digest(session.get()));
            const Session own = fork(session.get());
            for (stasis_session *both : {loaded.get(), own.get()}) {
                append(both, some_tokens(5, 9));
                stasis_token token = 0;
                REQUIRE(stasis_session_decode(both, &token, nullptr) == STASIS_OK);
            }
            CHECK(digest(loaded.get()) == digest(own.get()));
            auto report = sized<stasis_verify_report>();
            stasis_error error;
            const stasis_status status =
                stasis_snapshot_verify(open_snapshot(path).get(), model, nullptr, &report, &error);
            CHECK_MESSAGE(status == STASIS_OK, error.message);
            CHECK(report.positions == 207);
        }
    }
}

TEST_CASE("stasis_session_evict: a file grows over an eviction, and back behind it") {
    const Folder folder;
    const std::string path = folder.file("a");
    const Session session = session_of(llama(), some_tokens(150));
    const Session plain = fork(session.get());
    REQUIRE(save(session.get(), path) == STASIS_OK);
    REQUIRE(evict(session.get(), 0, 128) == STASIS_OK);
    REQUIRE(save(session.get(), path) == STASIS_OK);
    CHECK(digest(load(llama(), path).get()) == digest(session.get()));
    append(session.get(), some_tokens(100, 4));
    REQUIRE(save(session.get(), path) == STASIS_OK);
    const Session loaded = load(llama(), path);
    CHECK(digest(loaded.get()) == digest(session.get()));
    stasis_error error;
    CHECK(stasis_session_rewind(loaded.get(), 149, 0, nullptr, &error) == STASIS_UNSUPPORTED);
    CHECK(contains(error, "below the floor 150: at that position tokens were evicted"));
    REQUIRE(stasis_session_rewind(loaded.get(), 149, STASIS_REWIND_RECOMPUTE, nullptr, &error) ==
            STASIS_OK);
    append(loaded.get(), {some_tokens(150)[149]});
    CHECK(digest(loaded.get()) == digest(plain.get()));
    REQUIRE(save(loaded.get(), path) == STASIS_OK);
    CHECK(digest(load(llama(), path).get()) == digest(plain.get()));
}

TEST_CASE("stasis_session_evict: bad ranges are refused and change nothing") {
    const Session session = session_of(llama(), some_tokens(100));
    const Digest before = digest(session.get());
    stasis_error error;
    CHECK(evict(session.get(), 50, 101, &error) == STASIS_INVALID_ARGUMENT);
    CHECK(contains(error, "[50, 101): expected a range within the session's 100"));
    CHECK(evict(session.get(), 51, 50, &error) == STASIS_INVALID_ARGUMENT);
    CHECK(evict(nullptr, 0, 1, &error) == STASIS_INVALID_ARGUMENT);
    CHECK(evict(session.get(), 0, 0) == STASIS_OK);
    CHECK(evict(create(llama()).get(), 0, 0) == STASIS_OK);
    CHECK(digest(session.get()) == before);
    REQUIRE(evict(session.get(), 0, 64) == STASIS_OK);
    std::vector<uint16_t> keys(1 << 16), values = keys;
    size_t count = 0;
    CHECK(stasis_session_kv(session.get(), 0, 63, 64, keys.data(), values.data(), keys.size(),
                            &count, &error) == STASIS_NOT_FOUND);
    CHECK(contains(error, "layer 0 has released position 63 (evicted; window of 0)"));
}

TEST_CASE("stasis_session_evict: the budget's pages come back, and another session takes them") {
    auto options = sized<stasis_model_options>();
    const Session probe = session_of(llama(), some_tokens(64));
    const uint64_t page = info_of(probe.get()).kv_bytes;
    options.kv_budget_bytes = 4 * page;
    const Model model = open_path(test_data("zoo/llama-gqa-untied"), &options);
    const Session session = session_of(model.get(), some_tokens(256));
    const Session other = create(model.get());
    const Tokens tokens = some_tokens(100, 2);
    stasis_error error;
    REQUIRE(stasis_session_append(other.get(), tokens.data(), tokens.size(), nullptr, &error) ==
            STASIS_POOL_EXHAUSTED);
    REQUIRE(evict(session.get(), 64, 192) == STASIS_OK);
    CHECK(stasis_session_append(other.get(), tokens.data(), tokens.size(), nullptr, &error) ==
          STASIS_OK);
}
