// Locks of backends, and writers that are killed while they hold one.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <set>
#include <thread>

#include "backends.h"

using namespace stasis;
using namespace stasis::format;

namespace {

// A deadline that is soon over.
Watch short_watch(uint64_t ms) {
    Watch watch;
    watch.deadline = Deadline::in_ms(ms);
    return watch;
}

// What a writer that may be killed at any moment does: puts, then roots that name what was put.
// It tells the number of a step when the step is done.
int write_steps(const BackendKind &kind, const std::string &path, const Pipe &tells,
                uint32_t begin) {
    const auto backend = kind.open(path);
    for (uint32_t step = begin;; ++step) {
        const auto held = backend->lock_to_write();
        const Bytes object = whole_bytes(step, 20'000 + step % 7 * 9000);
        backend->put("objects/" + std::to_string(step % 16) + "/" + std::to_string(step), object);
        const auto root = backend->get_marked("roots/r");
        const auto mark = root ? std::optional(root->mark) : std::nullopt;
        if (!backend->swap("roots/r", mark, whole_bytes(step, 3000 + step % 5 * 1000))) {
            return 1;
        }
        if (step % 3 == 2) {
            const uint32_t old = step - 2;
            backend->remove("objects/" + std::to_string(old % 16) + "/" + std::to_string(old));
        }
        tells.tell(step);
    }
}

// The step of the root, after everything was checked: that all is whole, and that what `told`
// promises is there. 0: there is no root. `unsure`: objects whose removal was cut short.
uint32_t check_after_kill(Backend &backend, uint32_t told, std::set<uint32_t> &unsure) {
    std::set<uint32_t> there;
    uint32_t root = 0;
    backend.list("", [&](const ListedObject &each) {
        const auto bytes = backend.get(each.key);
        REQUIRE(bytes);
        CHECK(bytes->size() == each.bytes);
        CHECK(are_whole(*bytes));
        uint32_t step = 0;
        std::memcpy(&step, bytes->data(), sizeof step);
        if (each.key == "roots/r") {
            root = step;
        } else {
            CHECK(each.key.substr(each.key.rfind('/') + 1) == std::to_string(step));
            there.insert(step);
        }
        return true;
    });
    CHECK(root >= told);
    CHECK(root <= told + 1);
    if (told >= 2 && (told + 1) % 3 == 2) {
        unsure.insert(told - 1); // by the step that was cut short
    }
    for (uint32_t step = 1; step <= told; ++step) {
        // Removed ones may come back after a power loss, not after a kill.
        const bool removed = step % 3 == 0 && step + 2 <= told;
        CAPTURE(step);
        CHECK((unsure.count(step) != 0 || (there.count(step) != 0) == !removed));
    }
    CHECK((root == 0 || there.count(root) != 0)); // a root names only what is there
    return root;
}

} // namespace

TEST_CASE("Backend::lock_to_write: many writers, or one collector") {
    with_backends([](const BackendKind &kind, const std::string &path) {
        const auto one = kind.open(path);
        const auto two = kind.lasts ? kind.open(path) : nullptr;
        for (Backend *const other : {one.get(), two ? two.get() : one.get()}) {
            auto writer = one->lock_to_write();
            auto second = other->lock_to_write();
            REQUIRE(writer);
            REQUIRE(second);
            CHECK(thrown_by([&] { other->lock_to_collect(short_watch(30)); }) == Status::timeout);
            writer.reset();
            CHECK(thrown_by([&] { other->lock_to_collect(short_watch(30)); }) == Status::timeout);
            second.reset();
            auto collector = other->lock_to_collect(short_watch(5000));
            REQUIRE(collector);
            CHECK(thrown_by([&] { one->lock_to_write(short_watch(30)); }) == Status::timeout);
            CHECK(thrown_by([&] { one->lock_to_collect(short_watch(30)); }) == Status::timeout);
            std::atomic<bool> cancelled{true};
            Watch watch;
            watch.cancel = &cancelled;
            CHECK(thrown_by([&] { one->lock_to_write(watch); }) == Status::cancelled);
            CHECK(thrown_by([&] { one->lock_to_collect(watch); }) == Status::cancelled);
            collector.reset();
            CHECK(one->lock_to_write(short_watch(5000)));
        }
    });
}

TEST_CASE("Backend::lock_to_collect: a row of writers in threads does not keep a collector out") {
    with_backends([](const BackendKind &kind, const std::string &path) {
        const auto backend = kind.open(path);
        std::atomic<bool> end{false};
        std::atomic<int> inside{0}, met{0}, collected{0};
        const int failed = run_threads(9, [&](int thread) {
            if (thread == 8) {
                for (int round = 0; round < 10; ++round) {
                    Watch watch;
                    watch.deadline = Deadline::in_ms(20'000);
                    std::unique_ptr<BackendLock> held;
                    try {
                        held = backend->lock_to_collect(watch);
                    } catch (const Error &) {
                        break;
                    }
                    met += inside != 0 ? 1 : 0;
                    ++collected;
                }
                end = true;
                return;
            }
            while (!end) { // at each moment some of the eight hold it
                const auto held = backend->lock_to_write();
                ++inside;
                std::this_thread::sleep_for(std::chrono::milliseconds(3));
                --inside;
            }
        });
        CHECK(failed == 0);
        CHECK(met == 0);
        CHECK(collected == 10);
    });
}

TEST_CASE("Backend: a lock ends with the process that was killed") {
    with_backends(
        [](const BackendKind &kind, const std::string &path) {
            for (const bool collects : {false, true}) {
                const Pipe tells;
                const pid_t child = begin_process([&] {
                    const auto backend = kind.open(path);
                    const auto held =
                        collects ? backend->lock_to_collect() : backend->lock_to_write();
                    tells.tell(1);
                    return pause();
                });
                REQUIRE(tells.hear() == 1);
                {
                    const auto backend = kind.open(path);
                    Watch watch;
                    watch.deadline = Deadline::in_ms(50);
                    CHECK(thrown_by([&] { backend->lock_to_collect(watch); }) == Status::timeout);
                    watch.deadline = Deadline::in_ms(50);
                    CHECK(thrown_by([&] { backend->lock_to_write(watch); }) ==
                          (collects ? Status::timeout : Status::ok));
                }
                kill(child, SIGKILL);
                CHECK(end_of_process(child) == -1);
                const auto backend = kind.open(path);
                Watch watch;
                watch.deadline = Deadline::in_ms(20'000);
                CHECK(backend->lock_to_collect(watch));
            }
        },
        true);
}

TEST_CASE("Backend: a writer is killed at 100 moments, and nothing is torn or lost") {
    with_backends(
        [](const BackendKind &kind, const std::string &path) {
            std::set<uint32_t> unsure;
            uint32_t told = 0; // steps that were reported done
            uint64_t state = 12345;
            for (int round = 0; round < 100; ++round) {
                CAPTURE(round);
                Pipe tells;
                const uint32_t begin = told + 1;
                const pid_t child =
                    begin_process([&] { return write_steps(kind, path, tells, begin); });
                tells.close_writer();
                state = state * 6364136223846793005 + 1442695040888963407;
                // Some while it opens, or makes, the store; most within the steps.
                std::this_thread::sleep_for(std::chrono::microseconds((state >> 33) % 50'000));
                kill(child, SIGKILL);
                CHECK(end_of_process(child) == -1);
                while (const auto step = tells.hear()) {
                    told = *step;
                }
                const auto backend = kind.open(path);
                told = check_after_kill(*backend, told, unsure);
                if (round % 10 == 9) {
                    CHECK(backend->lock_to_collect());
                }
            }
            CHECK(told > 20);
        },
        true);
}
