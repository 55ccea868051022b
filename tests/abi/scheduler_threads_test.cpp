// Schedulers used by several threads at once: whoever computes, and whatever comes and goes
// meanwhile, each session has the tokens and the digest that it has alone.
#include <atomic>
#include <mutex>
#include <random>
#include <thread>

#include "tests/abi/scheduled.h"
#include "tests/sanitizers.h"
#include "tests/share.h"

using namespace abi_test;

namespace {

// doctest's checks are not made for many threads: what goes wrong is counted, and checked
// afterwards.
struct Wrong {
    std::atomic<int> count{0};
    void unless(bool right) { count += right ? 0 : 1; }
};

void run_threads(size_t count, const std::function<void(size_t)> &work) {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < count; ++i) {
        threads.emplace_back(work, i);
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

} // namespace

TEST_CASE("stasis_scheduler_next: threads that each wait for their own session") {
    constexpr size_t kThreads = 8;
    const Scheduler scheduler = make_scheduler(gemma(), limits(5, 32));
    std::vector<Session> sessions, twins;
    std::vector<Task> tasks;
    std::vector<Heard> heard(kThreads);
    for (uint32_t i = 0; i < kThreads; ++i) {
        sessions.push_back(session_of(gemma(), some_tokens(10 + 9 * i, i)));
        twins.push_back(fork(sessions.back().get()));
        tasks.push_back({some_tokens(i % 3 * 50, i), 5 + 3 * i, i % 2});
    }
    Wrong wrong;
    run_threads(kThreads, [&](size_t i) {
        wrong.unless(try_submit(scheduler, sessions[i], tasks[i]) == STASIS_OK);
        while (heard[i].status == -1) {
            stasis_scheduler_event *event = nullptr;
            const stasis_status status = stasis_scheduler_next(scheduler.get(), sessions[i].get(),
                                                               STASIS_FOREVER, &event, nullptr);
            wrong.unless(status == STASIS_OK && event->session == sessions[i].get());
            if (status != STASIS_OK) {
                break;
            }
            heard[i].hear(*event);
            stasis_scheduler_event_free(event);
        }
    });
    CHECK(wrong.count == 0);
    for (size_t i = 0; i < kThreads; ++i) {
        check_as_alone(heard[i], sessions[i], twins[i], tasks[i]);
    }
}

TEST_CASE(
    "stasis_scheduler_next: threads that take any event, while others read, submit and fork") {
    constexpr size_t kCount = 12;
    const Scheduler scheduler = make_scheduler(gemma(), limits(4, 32, 2));
    std::vector<Session> sessions, twins;
    std::vector<Task> tasks;
    for (uint32_t i = 0; i < kCount; ++i) {
        sessions.push_back(session_of(gemma(), some_tokens(10 + 9 * i, i)));
        twins.push_back(fork(sessions.back().get()));
        tasks.push_back({some_tokens(i % 3 * 50, i), 5 + i});
    }
    Wrong wrong;
    std::mutex mutex;
    AllHeard heard;
    std::atomic<size_t> ended{0};
    run_threads(5, [&](size_t thread) {
        if (thread == 0) {
            for (size_t i = 0; i < kCount; ++i) {
                stasis_status status = STASIS_BUSY; // while the reader has it
                while (status == STASIS_BUSY) {
                    status = try_submit(scheduler, sessions[i], tasks[i]);
                }
                wrong.unless(status == STASIS_OK);
            }
        }
        for (size_t round = 0; ended < kCount; ++round) {
            if (thread == 4) { // a reader, who is always answered
                const Session &any = sessions[round % kCount];
                stasis_digest value;
                auto info = sized<stasis_session_info>();
                const stasis_status got = stasis_session_digest(any.get(), &value, nullptr);
                wrong.unless(got == STASIS_OK);
                const stasis_status told = stasis_session_get_info(any.get(), &info, nullptr);
                wrong.unless(told == STASIS_OK);
                continue;
            }
            stasis_scheduler_event *event = nullptr;
            wrong.unless(stasis_scheduler_next(scheduler.get(), nullptr, 5, &event, nullptr) ==
                         STASIS_OK);
            if (event != nullptr) {
                const std::lock_guard lock(mutex);
                heard[event->session].hear(*event);
                ended += event->end;
                stasis_scheduler_event_free(event);
            }
        }
    });
    CHECK(wrong.count == 0);
    for (size_t i = 0; i < kCount; ++i) {
        // Two threads may hear two events of a session in either order.
        Heard &own = heard[sessions[i].get()];
        std::sort(own.events.begin(), own.events.end(), [](const auto &a, const auto &b) {
            return std::pair(a.position, a.last) < std::pair(b.position, b.last);
        });
        check_as_alone(own, sessions[i], twins[i], tasks[i]);
    }
}

TEST_CASE("stasis_scheduler_stop: threads that wait are told, and sessions are whole") {
    for (int round = 0; round < 10; ++round) {
        Scheduler scheduler = make_scheduler(gemma(), limits(0, 16));
        const Session session = session_of(gemma(), some_tokens(20)), twin = fork(session.get());
        submit(scheduler, session, {some_tokens(300, 3)});
        std::atomic<int> cancelled{0}, waiting{0};
        std::thread stopper([&] {
            while (waiting < 3) {
                std::this_thread::yield();
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(round));
            stasis_scheduler_stop(scheduler.get());
        });
        run_threads(3, [&](size_t) {
            ++waiting;
            stasis_status status = STASIS_OK;
            while (status == STASIS_OK) {
                stasis_scheduler_event *event = nullptr;
                status = stasis_scheduler_next(scheduler.get(), nullptr, STASIS_FOREVER, &event,
                                               nullptr);
                if (status == STASIS_OK) {
                    stasis_scheduler_event_free(event);
                }
            }
            cancelled += status == STASIS_CANCELLED ? 1 : 0;
        });
        stopper.join();
        CHECK(cancelled == 3);
        if (position(session.get()) != 20) {
            append(twin.get(), some_tokens(300, 3));
            draw(twin.get(), position(session.get()) - 320);
        }
        CHECK(digest(session.get()) == digest(twin.get()));
        draw(session.get());
    }
}

namespace {

// One thread of a random walk, with sessions that only it frees and submits.
struct Walker {
    const Scheduler &scheduler;
    stasis_model *model;
    Wrong &wrong;
    std::mt19937 random;
    std::vector<Session> sessions = {};
    std::vector<bool> in = {};

    void check(size_t i) { // its log gives its digest
        Tokens tokens(2000);
        size_t count = 0;
        stasis_digest own{}, fresh{};
        stasis_session *again = nullptr;
        stasis_session *const session = sessions[i].get();
        auto options = sized<stasis_session_options>();
        options.domain = STASIS_DOMAIN_PRIVATE;
        const bool right =
            stasis_session_tokens(session, 0, tokens.data(), nullptr, tokens.size(), &count,
                                  nullptr) == STASIS_OK &&
            stasis_session_digest(session, &own, nullptr) == STASIS_OK &&
            stasis_session_create(model, &options, &again, nullptr) == STASIS_OK &&
            stasis_session_append(again, tokens.data(), count, nullptr, nullptr) == STASIS_OK &&
            stasis_session_digest(again, &fresh, nullptr) == STASIS_OK;
        stasis_session_free(again);
        wrong.unless(right && std::memcmp(&own, &fresh, sizeof own) == 0);
    }

    void take(uint64_t timeout_ms, size_t i) {
        stasis_scheduler_event *event = nullptr;
        const bool any = i == sessions.size();
        const stasis_status status = stasis_scheduler_next(
            scheduler.get(), any ? nullptr : sessions[i].get(), timeout_ms, &event, nullptr);
        // Another walker may have fetched the end of this one's session.
        wrong.unless(status == STASIS_OK || (!any && status == STASIS_NOT_FOUND));
        if (status == STASIS_OK && event != nullptr) {
            wrong.unless(event->end == 0 || event->status == STASIS_OK ||
                         event->status == STASIS_CANCELLED);
            stasis_scheduler_event_free(event);
        }
    }

    void submit(size_t i) {
        const Task task{some_tokens(random() % 90, random()), 1 + random() % 12};
        const stasis_status status = try_submit(scheduler, sessions[i], task);
        wrong.unless(status == STASIS_OK || status == STASIS_BUSY);
        if (status == STASIS_OK && position(i) > 1500) {
            stasis_scheduler_cancel(scheduler.get(), sessions[i].get(), nullptr);
        }
    }
    uint64_t position(size_t i) {
        auto info = sized<stasis_session_info>();
        return stasis_session_get_info(sessions[i].get(), &info, nullptr) == STASIS_OK
                   ? info.position
                   : 0;
    }

    void step() {
        const size_t i = random() % sessions.size();
        switch (random() % 8) {
        case 0:
        case 1:
            return submit(i);
        case 2: {
            const stasis_status status =
                stasis_scheduler_cancel(scheduler.get(), sessions[i].get(), nullptr);
            return wrong.unless(status == STASIS_OK || status == STASIS_NOT_FOUND);
        }
        case 3: { // freed, in or out of the scheduler
            stasis_session *made = nullptr;
            const Tokens tokens = some_tokens(1 + random() % 70, random());
            sessions[i].reset();
            wrong.unless(stasis_session_create(model, nullptr, &made, nullptr) == STASIS_OK);
            sessions[i].reset(made);
            return wrong.unless(stasis_session_append(made, tokens.data(), tokens.size(), nullptr,
                                                      nullptr) == STASIS_OK);
        }
        case 4:
            return take(2, i);
        default:
            return take(random() % 3, sessions.size());
        }
    }
};

} // namespace

TEST_CASE("stasis_scheduler_submit: threads that submit, cancel, free and take events at random") {
    const uint32_t seed = stasis::test::test_seed();
    const int steps = stasis::test::kSanitized ? 60 : 400;
    Wrong wrong;
    const Scheduler scheduler = make_scheduler(gemma(), limits(4, 0, 3));
    std::vector<Walker> walkers;
    for (uint32_t thread = 0; thread < 4; ++thread) {
        walkers.push_back({scheduler, gemma(), wrong, std::mt19937(seed + thread)});
        for (uint32_t i = 0; i < 3; ++i) {
            walkers.back().sessions.push_back(session_of(gemma(), some_tokens(20 + i, i)));
        }
    }
    run_threads(walkers.size(), [&](size_t thread) {
        for (int i = 0; i < steps; ++i) {
            walkers[thread].step();
        }
    });
    CAPTURE(seed);
    CHECK(wrong.count == 0);
    for (uint64_t left = stats_of(scheduler).sessions; left > 0;) { // what is left goes on
        const Event event = next(scheduler);
        left -= event->end;
    }
    for (Walker &walker : walkers) {
        for (size_t i = 0; i < walker.sessions.size(); ++i) {
            walker.check(i);
        }
    }
    CHECK(wrong.count == 0);
}
