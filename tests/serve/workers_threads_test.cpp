// Workers and deadlines: what was given runs, also what it gives while they end; and each is told
// of the end of its time, once and not before.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/serve/wire.h"
#include "tools/serve/engine/deadlines.h"
#include "tools/serve/engine/workers.h"

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kTime{50};

struct Told : serve::Timed {
    const Clock::time_point begun = Clock::now();
    std::atomic<int> times{0};
    std::atomic<bool> early{false};
    void expire() override {
        early = early || Clock::now() < begun + kTime;
        ++times;
    }
};

// The deadline's thread holds the last of it; its end waits for another that is added.
struct LateOne : serve::Timed {
    std::shared_ptr<LateOne> self;
    std::promise<void> &ending, &added;
    std::promise<bool> &in_time;

    LateOne(std::promise<void> &tells, std::promise<void> &waits, std::promise<bool> &result)
        : ending(tells), added(waits), in_time(result) {}
    ~LateOne() override {
        constexpr std::chrono::minutes kLimit{1}; // only a broken program needs it
        ending.set_value();
        in_time.set_value(added.get_future().wait_for(kLimit) == std::future_status::ready);
    }
    void expire() override { self = nullptr; }
};

} // namespace

TEST_CASE("Workers: work that work gives runs, also while they end") {
    for (const bool watched : {false, true}) {
        serve::Workers workers(1, watched ? 4 : 1);
        std::promise<void> entered, go_on;
        std::atomic<int> ran{0};
        workers.post([&] {
            entered.set_value();
            go_on.get_future().wait();
            workers.post([&] {
                ++ran;
                workers.post([&] { ++ran; });
            });
        });
        entered.get_future().wait();
        std::thread ending([&] { workers.finish(); });
        go_on.set_value();
        ending.join();
        CHECK(ran == 2);
        // Nobody is there any more: it is dropped, and what it holds is free.
        const auto held = std::make_shared<int>(0);
        workers.post([&, held] { ++ran; });
        CHECK(held.use_count() == 1);
        workers.finish();
        CHECK(ran == 2);
    }
}

TEST_CASE("Workers: others come where all wait, up to the most") {
    serve::Workers workers(1, 3);
    std::promise<void> go_on;
    const std::shared_future<void> gone_on = go_on.get_future().share();
    std::atomic<int> begun{0}, last{0};
    for (int i = 0; i < 3; ++i) {
        workers.post([&, gone_on] {
            ++begun;
            gone_on.wait();
        });
    }
    CHECK(wire::wait_until([&] { return begun == 3; }));
    workers.post([&] { ++last; });
    CHECK(workers.waiting() == 1);
    go_on.set_value();
    workers.finish();
    CHECK(last == 1);
}

TEST_CASE("Deadlines: each is told once, and none before its time") {
    serve::Deadlines deadlines(kTime.count());
    std::vector<std::shared_ptr<Told>> all;
    for (int i = 0; i < 300; ++i) { // more than are there before they are swept
        all.push_back(std::make_shared<Told>());
        deadlines.add(all.back());
        deadlines.add(std::make_shared<Told>()); // is gone at once
    }
    for (const std::shared_ptr<Told> &told : all) {
        CHECK(wire::wait_until([&] { return told->times == 1; }));
    }
    const auto after = std::make_shared<Told>(); // nobody waits
    deadlines.add(after);
    CHECK(wire::wait_until([&] { return after->times == 1; }));
    for (const std::shared_ptr<Told> &told : all) {
        CHECK(told->times == 1);
        CHECK_FALSE(told->early);
    }
}

TEST_CASE("Deadlines: while one that is late ends, others are added") {
    std::promise<void> ending, added;
    std::promise<bool> in_time;
    serve::Deadlines deadlines(1);
    auto waiting = std::make_shared<LateOne>(ending, added, in_time);
    waiting->self = waiting;
    const std::weak_ptr<LateOne> weak = std::exchange(waiting, nullptr);
    deadlines.add(weak);
    ending.get_future().wait();
    deadlines.add(std::make_shared<Told>());
    added.set_value();
    CHECK(in_time.get_future().get());
}

TEST_CASE("Deadlines: without a time nobody is told, and a long one does not keep the end") {
    for (const uint64_t time : {uint64_t{0}, UINT64_MAX}) {
        const auto told = std::make_shared<Told>();
        {
            serve::Deadlines deadlines(time);
            deadlines.add(told);
        }
        CHECK(told->times == 0);
        CHECK(told.use_count() == 1);
    }
}
