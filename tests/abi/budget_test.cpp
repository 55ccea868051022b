// The budget of KV bytes: which calls are refused, and when; the effect on other sessions; and the
// statistics.
#include "tests/abi/fixture.h"

using namespace abi_test;

namespace {

const char *const kLlama = "zoo/llama-gqa-untied";

uint64_t bytes_of(const Session &session) {
    return info_of(session).kv_bytes;
}

uint64_t page_bytes() {
    return bytes_of(session_of(llama(), some_tokens(64)));
}

Model with_pages(uint64_t pages) {
    auto options = sized<stasis_model_options>();
    options.kv_budget_bytes = pages * page_bytes();
    return open_path(test_data(kLlama), &options);
}

// Appends; `*computed` is what the call had done when it ended.
stasis_status try_append(const Session &session, const Tokens &tokens, uint64_t *computed,
                         stasis_error *error = nullptr) {
    auto run = sized<stasis_run_options>();
    run.chunk = 16;
    run.progress_user = computed;
    run.progress = [](void *user, uint64_t done, uint64_t) -> int32_t {
        *static_cast<uint64_t *>(user) = done;
        return 0;
    };
    return stasis_session_append(session.get(), tokens.data(), tokens.size(), &run, error);
}

void check_sums(const Model &model) {
    const stasis_model_stats stats = stats_of(model);
    CHECK(stats.kv_used_bytes + stats.kv_free_bytes == stats.kv_budget_bytes);
    CHECK(stats.kv_cached_bytes <= stats.kv_free_bytes);
    CHECK(stats.kv_known_bytes <= stats.kv_cached_bytes);
}

} // namespace

TEST_CASE("stasis_session_append: an append that cannot have its pages is refused before anything "
          "is computed") {
    const Model model = with_pages(6);
    const Session other = session_of(model.get(), some_tokens(100, 2));
    for (const size_t start : {0, 10, 64}) {
        const Session session = session_of(model.get(), some_tokens(start));
        const Digest before = digest(session.get());
        const uint64_t used = stats_of(model).kv_used_bytes;
        uint64_t computed = 0;
        stasis_error error;
        CHECK(try_append(session, some_tokens(4 * 64 + 1 - start, 3), &computed, &error) ==
              STASIS_POOL_EXHAUSTED);
        CHECK_MESSAGE(contains(error, "tokens need"), error.message);
        CHECK(computed == 0);
        CHECK(stats_of(model).kv_used_bytes == used);
        CHECK(digest(session.get()) == before);
        CHECK(try_append(session, some_tokens(4 * 64 - start, 3), &computed) == STASIS_OK);
        CHECK(stats_of(model).kv_free_bytes == 0);
        check_sums(model);
    }
    // Windows release pages during the append, so it takes no more than the pages of one pass.
    auto options = sized<stasis_model_options>();
    options.kv_budget_bytes = 2 * bytes_of(session_of(gemma(), some_tokens(640)));
    const Model windows = open_path(test_data("zoo/gemma3-text"), &options);
    const Session session = create(windows.get());
    uint64_t computed = 0;
    CHECK(try_append(session, some_tokens(640), &computed) == STASIS_OK);
    CHECK(digest(session.get()) == digest(session_of(gemma(), some_tokens(640)).get()));
}

TEST_CASE(
    "stasis_session_append: FULL is the session's own and comes first; POOL_EXHAUSTED passes") {
    const Model model = with_pages(2);
    const Session small = create(model.get(), 100);
    Session other = session_of(model.get(), some_tokens(128, 2));
    uint64_t computed = 0;
    CHECK(try_append(small, some_tokens(101), &computed) == STASIS_FULL);
    CHECK(try_append(small, some_tokens(100), &computed) == STASIS_POOL_EXHAUSTED);
    other.reset();
    CHECK(try_append(small, some_tokens(101), &computed) == STASIS_FULL);
    CHECK(try_append(small, some_tokens(100), &computed) == STASIS_OK);
}

TEST_CASE("stasis_session_fork: a fork takes what it writes, and gives it back") {
    const uint64_t page = page_bytes();
    const Model model = with_pages(3);
    const Session parent = session_of(model.get(), some_tokens(100));
    CHECK(stats_of(model).kv_used_bytes == 2 * page);
    Session child = fork(parent.get());
    const Session late = fork(parent.get());
    CHECK(stats_of(model).kv_used_bytes == 2 * page);
    CHECK(stats_of(model).kv_shared_bytes == 4 * page);
    uint64_t computed = 0; // a copy of the last page and a new one are one too many
    CHECK(try_append(late, some_tokens(40, 3), &computed) == STASIS_POOL_EXHAUSTED);
    CHECK(computed == 0);
    append(child.get(), some_tokens(10, 2)); // a copy of the last page
    CHECK(stats_of(model).kv_used_bytes == 3 * page);
    const Digest before = digest(late.get());
    CHECK(try_append(late, some_tokens(1, 3), &computed) == STASIS_POOL_EXHAUSTED);
    CHECK(computed == 0);
    stasis_token token = 0;
    CHECK(stasis_session_decode(late.get(), &token, nullptr) == STASIS_POOL_EXHAUSTED);
    CHECK(digest(late.get()) == before);
    child.reset();
    CHECK(stats_of(model).kv_used_bytes == 2 * page);
    check_sums(model);
    CHECK(try_append(late, some_tokens(1, 3), &computed) == STASIS_OK);
    Tokens expected = some_tokens(100);
    expected.push_back(some_tokens(1, 3)[0]);
    CHECK(digest(late.get()) == digest(session_of(llama(), expected).get()));
}

TEST_CASE(
    "stasis_sessions_step: an item of a step that the budget refuses leaves the others alone") {
    const Model model = with_pages(7);
    const Tokens tokens = some_tokens(300);
    // The budget holds five pages: two for the first, not four more for the second, three for the
    // third.
    std::vector<Session> sessions;
    std::vector<stasis_step_item> items;
    const size_t counts[] = {128, 256, 192, 1}, starts[] = {0, 0, 0, 65};
    for (int i = 0; i < 4; ++i) {
        sessions.push_back(session_of(model.get(), some_tokens(starts[i], 5)));
        auto item = sized<stasis_step_item>();
        item.session = sessions.back().get();
        item.count = counts[i];
        items.push_back(item);
    }
    const Digest before = digest(sessions[1].get());
    uint64_t positions = 0; // that are computed, or would be
    auto run = sized<stasis_run_options>();
    run.progress_user = &positions;
    run.progress = [](void *user, uint64_t, uint64_t total) -> int32_t {
        *static_cast<uint64_t *>(user) = total;
        return 0;
    };
    REQUIRE(stasis_sessions_step(items.data(), sizeof items[0], items.size(), tokens.data(),
                                 tokens.size(), &run, nullptr) == STASIS_OK);
    CHECK(positions == 128 + 192 + 1);
    CHECK(items[0].status == STASIS_OK);
    CHECK(items[1].status == STASIS_POOL_EXHAUSTED);
    CHECK(items[2].status == STASIS_OK);
    CHECK(items[3].status == STASIS_OK);
    CHECK(digest(sessions[1].get()) == before);
    CHECK(stats_of(model).kv_free_bytes == 0);
    for (const int i : {0, 2, 3}) {
        Tokens expected = some_tokens(starts[i], 5);
        expected.insert(expected.end(), tokens.begin(),
                        tokens.begin() + static_cast<ptrdiff_t>(counts[i]));
        CHECK(digest(sessions[i].get()) == digest(session_of(llama(), expected).get()));
    }
    check_sums(model);
}

TEST_CASE("stasis_model_get_stats: what sessions share counts once, and what is known is not in "
          "the way") {
    const Model model = with_pages(4);
    const Tokens prompt = some_tokens(128);
    std::vector<Session> sessions;
    for (int i = 0; i < 20; ++i) { // twenty of two pages each
        sessions.push_back(create(model.get(), 0, 0, STASIS_DOMAIN_COMMON));
        append(sessions.back().get(), prompt);
    }
    CHECK(stats_of(model).kv_used_bytes == 2 * page_bytes());
    uint64_t computed = 0;
    CHECK(try_append(sessions[0], some_tokens(3 * 64, 2), &computed) == STASIS_POOL_EXHAUSTED);
    CHECK(try_append(sessions[0], some_tokens(2 * 64, 2), &computed) == STASIS_OK);
    CHECK(try_append(sessions[1], some_tokens(1, 3), &computed) == STASIS_POOL_EXHAUSTED);
    computed = 0;
    CHECK(try_append(sessions[1], some_tokens(2 * 64, 2), &computed) == STASIS_OK); // the same
    sessions.clear();
    CHECK(stats_of(model).kv_known_bytes == 4 * page_bytes());
    check_sums(model);
    const Session all = create(model.get());
    CHECK(try_append(all, some_tokens(4 * 64, 4), &computed) == STASIS_OK);
    CHECK(stats_of(model).kv_known_bytes == 0);
    check_sums(model);
}
