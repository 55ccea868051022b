// Busy objects, cancelling, progress, and many host threads on one model.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <ctime>
#include <thread>

#include "tests/abi/fixture.h"

using namespace abi_test;

namespace {

// A callback's view of the session whose call it interrupts.
struct Interrupted {
    stasis_session *session;
    std::vector<stasis_status> statuses;
};

int32_t call_everything(void *user, uint64_t, uint64_t) {
    auto &own = *static_cast<Interrupted *>(user);
    stasis_token token = 1;
    size_t count = 0;
    stasis_digest digest;
    stasis_session *child = nullptr;
    auto info = sized<stasis_session_info>();
    own.statuses = {stasis_session_append(own.session, &token, 1, nullptr, nullptr),
                    stasis_session_logits(own.session, nullptr, 0, &count, nullptr),
                    stasis_session_sample(own.session, &token, nullptr),
                    stasis_session_decode(own.session, &token, nullptr),
                    stasis_session_generate(own.session, nullptr, nullptr, nullptr),
                    stasis_session_fork(own.session, &child, nullptr),
                    stasis_session_rewind(own.session, 0, 0, nullptr, nullptr),
                    stasis_session_get_info(own.session, &info, nullptr),
                    stasis_session_tokens(own.session, 0, nullptr, nullptr, 0, &count, nullptr),
                    stasis_session_set_sampling(own.session, nullptr, nullptr),
                    stasis_session_save(own.session, "/dev/null/a", nullptr, nullptr),
                    stasis_session_digest(own.session, &digest, nullptr)};
    return 0;
}

} // namespace

TEST_CASE("stasis_session_append: a callback that calls into its own session gets BUSY, and "
          "nothing breaks") {
    const Session session = create(gemma());
    Interrupted own{session.get(), {}};
    auto options = sized<stasis_run_options>();
    options.progress = call_everything;
    options.progress_user = &own;
    const Tokens tokens = some_tokens(50);
    REQUIRE(stasis_session_append(session.get(), tokens.data(), 50, &options, nullptr) ==
            STASIS_OK);
    CHECK(own.statuses == std::vector<stasis_status>(12, STASIS_BUSY));
    CHECK(digest(session.get()) == digest(session_of(gemma(), tokens).get()));
}

TEST_CASE("stasis_session_append: a second thread gets BUSY while a call runs, and the session "
          "afterwards") {
    const Session session = create(gemma());
    std::atomic<int> stage{0};
    auto options = sized<stasis_run_options>();
    options.progress_user = &stage;
    options.progress = [](void *user, uint64_t, uint64_t) -> int32_t {
        auto &at = *static_cast<std::atomic<int> *>(user);
        int first = 0;
        at.compare_exchange_strong(first, 1); // the call is running
        while (at < 2) {
            std::this_thread::yield();
        }
        return 0;
    };
    const Tokens tokens = some_tokens(20);
    std::thread caller(
        [&] { stasis_session_append(session.get(), tokens.data(), 20, &options, nullptr); });
    while (stage < 1) {
        std::this_thread::yield();
    }
    stasis_error error;
    stasis_digest value;
    const stasis_status status = stasis_session_digest(session.get(), &value, &error);
    auto result = sized<stasis_generate_result>();
    result.count = 7;
    const stasis_status generated =
        stasis_session_generate(session.get(), nullptr, &result, nullptr);
    stage = 2;
    caller.join();
    CHECK(status == STASIS_BUSY);
    CHECK(error.status == STASIS_BUSY);
    CHECK(contains(error, "session"));
    CHECK(generated == STASIS_BUSY);
    CHECK(result.count == 0); // nothing began
    CHECK(position(session.get()) == 20);
}

TEST_CASE("stasis_cancel_request: a cancel request from another thread ends a call, sticks, and is "
          "reset") {
    const Session session = session_of(gemma(), some_tokens(70));
    const Digest before = digest(session.get());
    const Cancel cancel = make_cancel();
    auto options = sized<stasis_run_options>();
    options.chunk = 1;
    options.cancel = cancel.get();
    const Tokens tokens = some_tokens(1900, 2);
    stasis_status status = STASIS_OK;
    stasis_error error;
    std::thread caller([&] {
        status = stasis_session_append(session.get(), tokens.data(), 1900, &options, &error);
    });
    uint64_t done = 0, total = 0;
    while (done == 0) { // progress by polling, no callback needed
        stasis_cancel_progress(cancel.get(), &done, &total);
        std::this_thread::yield();
    }
    stasis_cancel_request(cancel.get());
    caller.join();
    CHECK(total == 1900);
    CHECK(status == STASIS_CANCELLED);
    CHECK(contains(error, "1900"));
    CHECK(digest(session.get()) == before);

    CHECK(stasis_session_append(session.get(), tokens.data(), 1, &options, nullptr) ==
          STASIS_CANCELLED);
    auto generate = sized<stasis_generate_options>();
    generate.cancel = cancel.get();
    auto result = sized<stasis_generate_result>();
    CHECK(stasis_session_generate(session.get(), &generate, &result, nullptr) == STASIS_CANCELLED);
    CHECK(result.stop_reason == STASIS_STOP_CANCELLED);
    CHECK(result.count == 0);
    auto open = sized<stasis_model_options>();
    open.cancel = cancel.get();
    stasis_model *model = nullptr;
    CHECK(stasis_model_open(test_data("zoo/gemma3-text").c_str(), &open, &model, nullptr) ==
          STASIS_CANCELLED);
    CHECK(model == nullptr);
    CHECK(digest(session.get()) == before);
    stasis_cancel_reset(cancel.get());
    CHECK(stasis_session_append(session.get(), tokens.data(), 1, &options, nullptr) == STASIS_OK);
}

TEST_CASE(
    "stasis_cancel_release: a cancel handle may be released while the call that uses it runs") {
    const Session session = create(gemma());
    stasis_cancel *cancel = make_cancel().release();
    auto options = sized<stasis_run_options>();
    options.chunk = 8;
    options.cancel = cancel;
    options.progress_user = cancel;
    options.progress = [](void *user, uint64_t done, uint64_t) -> int32_t {
        if (done == 0) {
            stasis_cancel_request(static_cast<stasis_cancel *>(user));
            stasis_cancel_release(static_cast<stasis_cancel *>(user));
        }
        return 0;
    };
    const Tokens tokens = some_tokens(50);
    CHECK(stasis_session_append(session.get(), tokens.data(), 50, &options, nullptr) ==
          STASIS_CANCELLED);
    CHECK(position(session.get()) == 0);
}

TEST_CASE("stasis_progress_fn: progress rises to the total, and a non-zero return stops the call") {
    const Session session = session_of(gemma(), some_tokens(10));
    const Digest before = digest(session.get());
    struct Seen {
        std::vector<uint64_t> done;
        uint64_t total, stop_at;
    } seen{{}, 0, UINT64_MAX};
    auto options = sized<stasis_run_options>();
    options.chunk = 16;
    options.progress_user = &seen;
    options.progress = [](void *user, uint64_t done, uint64_t total) -> int32_t {
        auto &into = *static_cast<Seen *>(user);
        into.done.push_back(done);
        into.total = total;
        return done >= into.stop_at ? -1 : 0;
    };
    const Tokens tokens = some_tokens(100, 2);
    seen.stop_at = 50;
    stasis_error error;
    CHECK(stasis_session_append(session.get(), tokens.data(), 100, &options, &error) ==
          STASIS_STOPPED);
    CHECK(digest(session.get()) == before);
    seen = {{}, 0, UINT64_MAX};
    CHECK(stasis_session_append(session.get(), tokens.data(), 100, &options, &error) == STASIS_OK);
    CHECK(std::is_sorted(seen.done.begin(), seen.done.end()));
    CHECK(seen.done.size() > 5);
    CHECK(seen.done.back() == 100);
    CHECK(seen.total == 100);
}

TEST_CASE("stasis_session_fork: parent and child of a fork run at the same time") {
    const Session parent = session_of(gemma(), some_tokens(100));
    const Session child = fork(parent.get());
    stasis_status statuses[2] = {-1, -1};
    const auto grow = [&](stasis_session *session, uint32_t seed, stasis_status &status) {
        for (uint32_t i = 0; i < 10; ++i) {
            const Tokens tokens = some_tokens(9, seed + i);
            status = stasis_session_append(session, tokens.data(), 9, nullptr, nullptr);
        }
    };
    std::thread other([&] { grow(child.get(), 100, statuses[1]); });
    grow(parent.get(), 200, statuses[0]);
    other.join();
    CHECK(statuses[0] == STASIS_OK);
    CHECK(statuses[1] == STASIS_OK);
    for (const auto &[session, seed] :
         {std::pair<stasis_session *, uint32_t>{child.get(), 100}, {parent.get(), 200}}) {
        const Session alone = session_of(gemma(), some_tokens(100));
        for (uint32_t i = 0; i < 10; ++i) {
            append(alone.get(), some_tokens(9, seed + i));
        }
        CHECK(digest(session) == digest(alone.get()));
    }
}

TEST_CASE("stasis_session_append: eight host threads on one model give what one gives") {
    const Digest expected = digest(session_of(llama(), some_tokens(130)).get());
    std::atomic<int> right{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
        threads.emplace_back([&, i] {
            stasis_session *session = nullptr, *child = nullptr;
            stasis_digest value{};
            auto stats = sized<stasis_model_stats>();
            const Tokens tokens = some_tokens(130);
            const size_t cut = 10 + static_cast<size_t>(i) * 13;
            bool ok = stasis_session_create(llama(), nullptr, &session, nullptr) == STASIS_OK;
            ok &= stasis_session_append(session, tokens.data(), cut, nullptr, nullptr) == STASIS_OK;
            ok &= stasis_session_fork(session, &child, nullptr) == STASIS_OK;
            stasis_session_free(session);
            ok &= stasis_session_append(child, tokens.data() + cut, 130 - cut, nullptr, nullptr) ==
                  STASIS_OK;
            ok &= stasis_session_digest(child, &value, nullptr) == STASIS_OK;
            ok &= stasis_model_get_stats(llama(), &stats, nullptr) == STASIS_OK;
            stasis_session_free(child);
            ok &= std::memcmp(value.bytes, expected.data(), expected.size()) == 0;
            right += ok ? 1 : 0;
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    CHECK(right == 8);
}

namespace {

constexpr uint32_t kTokens = 300;

// One host thread's generation: what came of it, and how many tokens all threads together decoded
// at most between two of its own. Not how long that took: machines pause. All begin at once, or a
// busy machine's last thread would be late before it has asked for anything.
struct Share {
    std::atomic<uint32_t> &decoded;
    std::barrier<> &start;
    Digest digest{};
    stasis_status status = STASIS_OK;
    uint32_t last = 0, longest = 0;
};

void generate_from(uint32_t seed, Share &share) {
    stasis_session *session = nullptr;
    stasis_digest value{};
    const Tokens tokens = some_tokens(20, seed);
    auto options = sized<stasis_generate_options>();
    options.tokens_max = kTokens;
    options.flags = STASIS_GENERATE_IGNORE_END;
    options.callback_user = &share;
    options.callback = [](void *user, const stasis_generated *event) -> int32_t {
        auto &into = *static_cast<Share *>(user);
        const uint32_t now = event->last != 0 ? into.last : ++into.decoded;
        into.longest = std::max(into.longest, now - into.last);
        into.last = now;
        return 0;
    };
    stasis_model *model = shared_model("recall-llama");
    share.status = stasis_session_create(model, nullptr, &session, nullptr);
    share.status |= stasis_session_append(session, tokens.data(), tokens.size(), nullptr, nullptr);
    share.start.arrive_and_wait();
    share.status |= stasis_session_generate(session, &options, nullptr, nullptr);
    share.status |= stasis_session_digest(session, &value, nullptr);
    stasis_session_free(session);
    std::copy(std::begin(value.bytes), std::end(value.bytes), share.digest.begin());
}

} // namespace

TEST_CASE("stasis_session_generate: four host threads generate on one model: each what it gives "
          "alone, none waits its turn") {
    std::atomic<uint32_t> ignored{0}, decoded{0};
    std::barrier<> one(1), four(4);
    std::vector<Share> alone(4, Share{ignored, one}), together(4, Share{decoded, four});
    for (uint32_t i = 0; i < 4; ++i) {
        generate_from(i, alone[i]);
    }
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < 4; ++i) {
        threads.emplace_back([&, i] { generate_from(i, together[i]); });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    CHECK(decoded == 4 * kTokens);
    for (uint32_t i = 0; i < 4; ++i) {
        CHECK(together[i].status == STASIS_OK);
        CHECK(together[i].digest == alone[i].digest);
        // One after another, the last would wait for three quarters of the tokens.
        CHECK(together[i].longest < 4 * kTokens / 2);
    }
}

TEST_CASE("stasis_session_append: after a call no thread of the library is busy") {
    std::atomic<uint32_t> decoded{0};
    std::barrier<> one(1);
    Share share{decoded, one};
    generate_from(1, share); // the pool was at work
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const std::clock_t before = std::clock(); // of the whole process
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    CHECK(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC < 0.02);
}
