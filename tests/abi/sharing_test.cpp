// Shared prefixes: full pages of the same tokens are held once and taken instead of computed, and
// only time, memory and tokens_reused show it. Expected values are those of sessions that share
// with no other.
#include <mutex>
#include <thread>

#include "tests/abi/fixture.h"

using namespace abi_test;

namespace {

Session sharing(stasis_model *model, uint64_t domain = STASIS_DOMAIN_COMMON,
                uint64_t window_retain = 0) {
    return create(model, 0, window_retain, domain);
}

Tokens part(const Tokens &tokens, size_t begin, size_t end) {
    return {tokens.begin() + static_cast<ptrdiff_t>(begin),
            tokens.begin() + static_cast<ptrdiff_t>(end)};
}

// The same state, logits and future as a session that computed everything alone.
void check_as_computed(stasis_model *model, const Session &session, const Tokens &tokens,
                       uint64_t window_retain = 0) {
    const Session alone = session_of(model, tokens, window_retain);
    CHECK(digest(session.get()) == digest(alone.get()));
    CHECK(logits_of(session) == logits_of(alone));
    CHECK(info_of(session).rewind_floor == info_of(alone).rewind_floor);
    const Session ahead = fork(session.get());
    for (const stasis_session *each : {ahead.get(), alone.get()}) {
        append(const_cast<stasis_session *>(each), some_tokens(70, 99));
    }
    CHECK(digest(ahead.get()) == digest(alone.get()));
    CHECK(logits_of(ahead) == logits_of(alone));
}

const char *const kModels[] = {"zoo/llama-gqa-untied", "zoo/gemma3-text"};

} // namespace

TEST_CASE("stasis_session_append: a thousand sessions with one prompt hold it once, and compute it "
          "once") {
    for (const char *name : kModels) {
        CAPTURE(name);
        const Model model = open_path(test_data(name));
        const Tokens prompt = some_tokens(256);
        std::vector<Session> sessions;
        sessions.push_back(sharing(model.get()));
        append(sessions[0].get(), prompt);
        CHECK(info_of(sessions[0]).tokens_reused == 0);
        const uint64_t used = stats_of(model).kv_used_bytes;
        const Digest expected = digest(session_of(model.get(), prompt).get());
        const std::vector<float> logits = logits_of(session_of(model.get(), prompt));
        while (sessions.size() < 1000) {
            sessions.push_back(sharing(model.get()));
            append(sessions.back().get(), prompt);
            REQUIRE(digest(sessions.back().get()) == expected);
            REQUIRE(logits_of(sessions.back()) == logits);
            REQUIRE(info_of(sessions.back()).tokens_reused == 256);
            REQUIRE(info_of(sessions.back()).pages_own == 0);
        }
        CHECK(stats_of(model).kv_used_bytes == used);
        CHECK(stats_of(model).kv_shared_bytes == 999 * used);
        sessions.clear();
        CHECK(stats_of(model).kv_used_bytes == 0);
        CHECK(stats_of(model).kv_known_bytes >= used); // gemma's outrun pages too
    }
}

TEST_CASE("stasis_session_append: a known prefix is taken at any place, and nothing tells the "
          "result from a computed one") {
    for (const char *name : kModels) {
        const Model model = open_path(test_data(name));
        const Tokens tokens = some_tokens(300);
        const Session first = sharing(model.get());
        append(first.get(), tokens);
        for (const size_t cut : {0, 1, 10, 63, 64, 65, 100, 128, 200}) {
            for (const size_t end : {64, 127, 128, 129, 256, 290, 300}) {
                if (cut >= end) {
                    continue;
                }
                CAPTURE(name);
                CAPTURE(cut);
                CAPTURE(end);
                const Session session = sharing(model.get());
                append(session.get(), part(tokens, 0, cut));
                const uint64_t before = info_of(session).tokens_reused;
                append(session.get(), part(tokens, cut, end));
                if (name == kModels[0]) {
                    CHECK(info_of(session).tokens_reused - before ==
                          end / 64 * 64 - std::min(cut, end / 64 * 64));
                }
                check_as_computed(model.get(), session, part(tokens, 0, end));
            }
        }
    }
}

TEST_CASE("stasis_session_append: a window's pages are taken where they are still there, and "
          "missed where they are not") {
    const auto check = [](const Model &model, const Tokens &tokens, uint64_t retain) {
        const Session session = sharing(model.get(), STASIS_DOMAIN_COMMON, retain);
        append(session.get(), tokens);
        check_as_computed(model.get(), session, tokens, retain);
        return info_of(session).tokens_reused;
    };
    const Tokens tokens = some_tokens(400); // the window is of 16 positions
    const Model model = open_path(test_data("zoo/gemma3-text"));
    const Session first = sharing(model.get());
    append(first.get(), tokens);
    CHECK(check(model, tokens, 0) == 384);
    CHECK(check(model, tokens, 250) == 384); // those outrun are not forgotten yet
    CHECK(check(model, part(tokens, 0, 200), 0) == 192);
    // Under a budget that has no pages for anything else they are reclaimed, and computed again.
    auto options = sized<stasis_model_options>();
    options.kv_budget_bytes = 6 * info_of(first).kv_bytes;
    const Model small = open_path(test_data("zoo/gemma3-text"), &options);
    const Session held = sharing(small.get());
    append(held.get(), tokens);
    CHECK(stats_of(small).kv_known_bytes > 0);
    for (std::vector<Session> fill; stats_of(small).kv_known_bytes > 0;) {
        fill.push_back(create(small.get()));
        append(fill.back().get(), some_tokens(64, 2));
    }
    CHECK(check(small, part(tokens, 0, 200), 0) == 0);
    CHECK(check(small, tokens, 0) == 384); // its end is held
}

TEST_CASE("stasis_session_append: an append that takes pages and then fails leaves the session as "
          "it was") {
    for (const char *name : kModels) {
        const Model model = open_path(test_data(name));
        const Tokens tokens = some_tokens(300);
        const Session first = sharing(model.get());
        append(first.get(), part(tokens, 0, 200));
        for (const size_t cut : {0, 10, 64, 100}) {
            CAPTURE(name);
            CAPTURE(cut);
            const Session session = sharing(model.get());
            append(session.get(), part(tokens, 0, cut));
            const Session parent = fork(session.get()); // shares the table that is put back
            const stasis_session_info before = info_of(session);
            const uint64_t used = stats_of(model).kv_used_bytes;
            auto run = sized<stasis_run_options>();
            uint64_t seen = 0;
            run.progress_user = &seen;
            run.chunk = 64;
            run.progress = [](void *user, uint64_t done, uint64_t total) -> int32_t {
                *static_cast<uint64_t *>(user) = done;
                return done == total ? 1 : 0;
            };
            CHECK(stasis_session_append(session.get(), tokens.data() + cut, 300 - cut, &run,
                                        nullptr) == STASIS_STOPPED);
            CHECK(seen == 300 - cut);
            const stasis_session_info after = info_of(session);
            CHECK(std::memcmp(&before, &after, sizeof before) == 0);
            CHECK(stats_of(model).kv_used_bytes == used);
            if (cut > 0) {
                check_as_computed(model.get(), session, part(tokens, 0, cut));
            }
            append(session.get(), part(tokens, cut, 300)); // what it had computed is known
            CHECK(info_of(session).tokens_reused >= 256 - cut);
            check_as_computed(model.get(), session, tokens);
        }
    }
}

TEST_CASE("stasis_session_options: only sessions of one domain share") {
    const Model model = open_path(test_data("zoo/llama-gqa-untied"));
    const Tokens tokens = some_tokens(128);
    const auto reused = [&](uint64_t domain) {
        const Session session = sharing(model.get(), domain);
        append(session.get(), tokens);
        return info_of(session).tokens_reused;
    };
    CHECK(reused(STASIS_DOMAIN_PRIVATE) == 0);
    CHECK(reused(STASIS_DOMAIN_PRIVATE) == 0);
    CHECK(reused(STASIS_DOMAIN_COMMON) == 0);
    CHECK(reused(7) == 0);
    CHECK(reused(STASIS_DOMAIN_COMMON) == 128);
    CHECK(reused(7) == 128);
    CHECK(reused(8) == 0);
    const Session parent = sharing(model.get(), 7);
    append(parent.get(), tokens);
    const Session child = fork(parent.get());
    CHECK(info_of(child).tokens_reused == 0);
    REQUIRE(stasis_session_rewind(child.get(), 64, 0, nullptr, nullptr) == STASIS_OK);
    append(child.get(), part(tokens, 64, 128));
    CHECK(info_of(child).tokens_reused == 64);
}

TEST_CASE("stasis_logits_fn: positions whose logits are asked for are computed") {
    const Model model = open_path(test_data("zoo/llama-gqa-untied"));
    const Tokens tokens = some_tokens(128);
    const Session first = sharing(model.get()), second = sharing(model.get());
    append(first.get(), tokens);
    uint64_t seen = 0;
    auto run = sized<stasis_run_options>();
    run.logits_user = &seen;
    run.logits = [](void *user, uint64_t, const float *, size_t) -> int32_t {
        ++*static_cast<uint64_t *>(user);
        return 0;
    };
    REQUIRE(stasis_session_append(second.get(), tokens.data(), 128, &run, nullptr) == STASIS_OK);
    CHECK(seen == 128);
    CHECK(info_of(second).tokens_reused == 0);
    CHECK(info_of(second).pages_own == 0); // held once all the same
}

TEST_CASE("stasis_session_append: pages let go are known for a while, and give way to those that "
          "are needed") {
    auto options = sized<stasis_model_options>();
    const Model unbounded = open_path(test_data("zoo/llama-gqa-untied"));
    const uint64_t page = info_of(session_of(unbounded.get(), some_tokens(64))).kv_bytes;
    options.kv_budget_bytes = 8 * page;
    const Model model = open_path(test_data("zoo/llama-gqa-untied"), &options);
    const Tokens tokens = some_tokens(6 * 64);
    append(sharing(model.get()).get(), tokens);
    CHECK(stats_of(model).kv_used_bytes == 0);
    CHECK(stats_of(model).kv_known_bytes == 6 * page);
    CHECK(stats_of(model).kv_cached_bytes == 6 * page);
    {
        const Session again = sharing(model.get());
        append(again.get(), tokens);
        CHECK(info_of(again).tokens_reused == 6 * 64);
        CHECK(stats_of(model).kv_used_bytes == 6 * page);
        CHECK(stats_of(model).kv_known_bytes == 0);
    }
    { // five pages: two are free, three of the known ones give way, the last of the path first
        const Session other = create(model.get());
        append(other.get(), some_tokens(5 * 64, 2));
        CHECK(stats_of(model).kv_known_bytes == 3 * page);
        const Session again = sharing(model.get());
        append(again.get(), part(tokens, 0, 3 * 64));
        CHECK(info_of(again).tokens_reused == 3 * 64);
        CHECK(digest(again.get()) ==
              digest(session_of(unbounded.get(), part(tokens, 0, 3 * 64)).get()));
    }
    const Session all = create(model.get()); // nothing that is idle exhausts the pool
    append(all.get(), some_tokens(8 * 64, 3));
    CHECK(stats_of(model).kv_known_bytes == 0);
    const Session more = create(model.get());
    CHECK(stasis_session_append(more.get(), tokens.data(), 1, nullptr, nullptr) ==
          STASIS_POOL_EXHAUSTED);
}

TEST_CASE("stasis_session_append: a page that others may take is never written to") {
    for (const char *name : kModels) {
        const Model model = open_path(test_data(name));
        const Tokens tokens = some_tokens(192);
        const Session first = sharing(model.get()), second = sharing(model.get());
        append(first.get(), tokens);
        REQUIRE(stasis_session_rewind(first.get(), 180, 0, nullptr, nullptr) == STASIS_OK);
        append(first.get(), some_tokens(5, 2)); // into what was a full page
        append(second.get(), tokens);
        CHECK(info_of(second).tokens_reused == 192);
        check_as_computed(model.get(), second, tokens);
        Tokens repaired = part(tokens, 0, 180);
        repaired.insert(repaired.end(), {1, 2, 3});
        REQUIRE(stasis_session_rewind(first.get(), 180, 0, nullptr, nullptr) == STASIS_OK);
        append(first.get(), {1, 2, 3});
        check_as_computed(model.get(), first, repaired);
    }
}

TEST_CASE("stasis_session_append: without memory for a copy, a known page that nobody else holds "
          "is written all the same") {
    const Model unbounded = open_path(test_data("zoo/llama-gqa-untied"));
    auto options = sized<stasis_model_options>();
    options.kv_budget_bytes = info_of(session_of(unbounded.get(), some_tokens(128))).kv_bytes;
    const Model model = open_path(test_data("zoo/llama-gqa-untied"), &options);
    const Session session = sharing(model.get());
    append(session.get(), some_tokens(128));
    REQUIRE(stasis_session_rewind(session.get(), 120, 0, nullptr, nullptr) == STASIS_OK);
    append(session.get(), {1, 2, 3});
    Tokens expected = some_tokens(120);
    expected.insert(expected.end(), {1, 2, 3});
    CHECK(digest(session.get()) == digest(session_of(unbounded.get(), expected).get()));
}

TEST_CASE("STASIS_LOAD_TRUSTED: loads share pages of the same digests; appends take them only from "
          "a trusted file") {
    const Folder folder;
    for (const char *name : kModels) {
        CAPTURE(name);
        const Tokens tokens = some_tokens(200);
        const std::string path = folder.file("a");
        REQUIRE(save(session_of(shared_model(name), tokens).get(), path, STASIS_SAVE_REPLACE) ==
                STASIS_OK);
        const Model model = open_path(test_data(name));
        const Session one = load(model.get(), path);
        const uint64_t used = stats_of(model).kv_used_bytes;
        const Session two = load(model.get(), path);
        CHECK(info_of(one).tokens_reused == 0);
        CHECK(info_of(two).tokens_reused >= 64);
        CHECK(stats_of(model).kv_used_bytes < 2 * used);
        check_as_computed(model.get(), two, tokens);
        const Session three = sharing(model.get());
        append(three.get(), tokens);
        CHECK(info_of(three).tokens_reused == 0); // a file may be forged
        append(one.get(), some_tokens(100, 3));
        append(two.get(), some_tokens(100, 3)); // what follows the same pages is the same
        CHECK(info_of(two).tokens_reused >= 64 + 56);
        CHECK(digest(one.get()) == digest(two.get()));

        // Known pages are no reason to believe a file.
        std::string damaged = read_file(path);
        damaged[damaged.size() / 2] ^= 1;
        write_file(folder.file("damaged"), damaged);
        stasis_session *none = nullptr;
        CHECK(stasis_session_load(model.get(), folder.file("damaged").c_str(), nullptr, &none,
                                  nullptr) == STASIS_CORRUPT);

        const Session four = load(model.get(), path); // shares with what was computed
        CHECK(info_of(four).pages_own == (name == kModels[0] ? 1 : 2));

        const Model other = open_path(test_data(name));
        auto options = sized<stasis_load_options>();
        options.flags = STASIS_LOAD_TRUSTED;
        stasis_session *out = nullptr;
        REQUIRE(stasis_session_load(other.get(), path.c_str(), &options, &out, nullptr) ==
                STASIS_OK);
        const Session trusted(out), after = sharing(other.get());
        append(after.get(), part(tokens, 0, 192));
        if (name == kModels[0]) { // gemma's windowed pages are not in the file
            CHECK(info_of(after).tokens_reused == 192);
        }
        check_as_computed(other.get(), after, part(tokens, 0, 192));
    }
}

TEST_CASE("STASIS_LOAD_TRUSTED: a log that is computed again may end in a page that a trusted file "
          "brought") {
    for (const char *name : kModels) { // which brings its keys and values, and no hidden state
        const Folder folder;
        const Tokens tokens = some_tokens(192);
        const Session session = session_of(shared_model(name), tokens);
        for (const uint32_t keep : {STASIS_KEEP_FULL, STASIS_KEEP_NONE}) {
            REQUIRE(save_as(session.get(), folder.file(std::to_string(keep)), STASIS_CODEC_RAW,
                            keep) == STASIS_OK);
        }
        auto options = sized<stasis_load_options>();
        options.flags = STASIS_LOAD_TRUSTED;
        const Model model = open_path(test_data(name));
        std::vector<Session> loaded;
        for (const uint32_t keep : {STASIS_KEEP_FULL, STASIS_KEEP_NONE}) {
            stasis_session *out = nullptr;
            stasis_error error;
            const stasis_status status = stasis_session_load(
                model.get(), folder.file(std::to_string(keep)).c_str(), &options, &out, &error);
            REQUIRE_MESSAGE(status == STASIS_OK, error.message);
            loaded.emplace_back(out);
        }
        check_as_computed(model.get(), loaded[1], tokens);
    }
}

TEST_CASE("stasis_session_decode: what is drawn alike is held once, alone and in steps") {
    const Model model = open_path(test_data("zoo/llama-gqa-untied"));
    std::vector<Session> sessions;
    Tokens flat = some_tokens(70);
    std::vector<stasis_step_item> items;
    for (int i = 0; i < 4; ++i) {
        sessions.push_back(sharing(model.get()));
        auto item = sized<stasis_step_item>();
        item.session = sessions.back().get();
        item.count = flat.size();
        item.flags = STASIS_STEP_SAMPLE;
        items.push_back(item);
    }
    for (int i = 0; i < 70; ++i) {
        REQUIRE(stasis_sessions_step(items.data(), sizeof items[0], items.size(), flat.data(),
                                     flat.size(), nullptr, nullptr) == STASIS_OK);
        for (stasis_step_item &item : items) {
            REQUIRE(item.status == STASIS_OK);
            item.count = 0;
        }
    }
    const Session late = sharing(model.get()), alone = create(model.get());
    for (const Session *each : {&late, &alone}) {
        append(each->get(), flat);
        for (int i = 0; i < 70; ++i) {
            stasis_token token = 0;
            REQUIRE(stasis_session_decode(each->get(), &token, nullptr) == STASIS_OK);
        }
    }
    for (const Session &session : sessions) {
        CHECK(digest(session.get()) == digest(alone.get()));
        CHECK(info_of(session).pages_own == 1);
        CHECK(info_of(session).pages_shared == 2);
    }
    CHECK(digest(late.get()) == digest(alone.get()));
    CHECK(info_of(late).tokens_reused == 64 + 1); // of the second page only its last was left
}

TEST_CASE("stasis_session_append: sessions of many threads share, let go and come back") {
    auto options = sized<stasis_model_options>();
    options.threads = 2;
    const uint64_t bytes = info_of(session_of(gemma(), some_tokens(300))).kv_bytes;
    options.kv_budget_bytes = 32 * bytes; // enough for all threads at once, sharing nothing
    const Model model = open_path(test_data("zoo/gemma3-text"), &options);
    std::vector<Digest> expected;
    for (uint32_t seed = 0; seed < 3; ++seed) {
        expected.push_back(digest(session_of(gemma(), some_tokens(200, seed)).get()));
    }
    std::atomic<int> wrong{0}, right{0};
    std::mutex mutex;
    std::string failures;
    const auto work = [&](uint32_t thread) {
        for (uint32_t round = 0; round < 12; ++round) {
            const uint32_t seed = (thread + round) % 3;
            const Tokens tokens = some_tokens(200, seed);
            auto session_options = sized<stasis_session_options>();
            stasis_session *out = nullptr;
            bool ok = stasis_session_create(model.get(), &session_options, &out, nullptr) == 0;
            const Session session(out);
            const size_t cut = 17 * round % 200;
            stasis_digest got{};
            stasis_error error{};
            ok = ok && stasis_session_append(out, tokens.data(), cut, nullptr, &error) == 0 &&
                 stasis_session_append(out, tokens.data() + cut, 200 - cut, nullptr, &error) == 0 &&
                 stasis_session_rewind(out, 190, 0, nullptr, &error) == 0 &&
                 stasis_session_append(out, tokens.data() + 190, 10, nullptr, &error) == 0 &&
                 stasis_session_digest(out, &got, &error) == 0;
            const bool same = std::memcmp(got.bytes, expected[seed].data(), 32) == 0;
            if (!ok || !same) {
                const std::lock_guard lock(mutex);
                failures += std::string(ok ? "another digest" : error.message) + "; ";
            }
            ok = ok && same;
            ++(ok ? right : wrong);
        }
    };
    std::vector<std::thread> threads;
    for (uint32_t thread = 0; thread < 8; ++thread) {
        threads.emplace_back(work, thread);
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    CHECK_MESSAGE(wrong == 0, failures);
    CHECK(right == 96);
    CHECK(stats_of(model).kv_used_bytes == 0);
    CHECK(stats_of(model).kv_cached_bytes <= options.kv_budget_bytes);
}

TEST_CASE("stasis_session_load: a load holds no known page that it does not keep") {
    const Folder folder;
    const std::string path = folder.file("a");
    const Tokens tokens = some_tokens(448);
    auto options = sized<stasis_model_options>();
    {
        const Model model = open_path(test_data("zoo/gemma3-text"), &options);
        const Session session = sharing(model.get(), 0, STASIS_WINDOW_RETAIN_NONE);
        append(session.get(), tokens);
        REQUIRE(save(session.get(), path) == STASIS_OK);
        const stasis_model_stats stats = stats_of(model); // pages before the windows are cached too
        options.kv_budget_bytes = stats.kv_used_bytes + stats.kv_known_bytes;
    }
    for (const size_t others : {64, 128, 192}) {
        for (const uint64_t domain : {STASIS_DOMAIN_PRIVATE, STASIS_DOMAIN_COMMON}) {
            const Model model = open_path(test_data("zoo/gemma3-text"), &options);
            append(sharing(model.get(), 0, STASIS_WINDOW_RETAIN_NONE).get(), tokens); // idle then
            const Session other = create(model.get(), 0, STASIS_WINDOW_RETAIN_NONE);
            append(other.get(), some_tokens(others, 2)); // takes the place of some of them
            auto session_options = sized<stasis_session_options>();
            session_options.domain = domain;
            session_options.window_retain = STASIS_WINDOW_RETAIN_NONE;
            auto load_options = sized<stasis_load_options>();
            load_options.session = &session_options;
            stasis_session *loaded = nullptr;
            stasis_error error;
            const stasis_status status =
                stasis_session_load(model.get(), path.c_str(), &load_options, &loaded, &error);
            CHECK_MESSAGE(status == STASIS_OK, error.message);
            const Session owner(loaded);
        }
    }
}
