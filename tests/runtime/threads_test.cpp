// The promises of runtime/host/threads.h: every item once, whatever the counts; callers beside each
// other; the environment of the workers; fork.
#include "runtime/host/threads.h"

#include <doctest/doctest.h>

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "format/state/error.h"
#include "runtime/host/memory.h"
#include "tests/runtime/model_files.h"
#include "tests/sanitizers.h"

namespace stasis {

namespace {

// Runs `items` items and counts how often each was visited; checks every range on the way.
std::vector<int> visits(Threads &threads, size_t items, size_t grain) {
    std::vector<std::atomic<int>> counts(items);
    std::atomic<int> bad_ranges{0};
    threads.run(items, grain, [&](size_t begin, size_t end) {
        if (begin >= end || end > items || end - begin > grain) {
            bad_ranges.fetch_add(1);
            return;
        }
        for (size_t i = begin; i < end; ++i) {
            counts[i].fetch_add(1);
        }
    });
    CHECK(bad_ranges == 0);
    return {counts.begin(), counts.end()};
}

// Runs until a worker, not only the caller, has taken part; returns what `probe` gave there.
template <typename Probe> auto on_a_worker(Threads &threads, const Probe &probe) {
    const std::thread::id caller = std::this_thread::get_id();
    std::atomic<bool> seen{false};
    std::mutex mutex;
    decltype(probe()) result{};
    for (int attempt = 0; attempt < 10000 && !seen; ++attempt) {
        threads.run(2, 1, [&](size_t, size_t) {
            if (std::this_thread::get_id() != caller) {
                const std::lock_guard lock(mutex);
                result = probe();
                seen = true;
            } else {
                for (int wait = 0; wait < 100 && !seen; ++wait) {
                    std::this_thread::sleep_for(std::chrono::microseconds(100));
                }
            }
        });
    }
    REQUIRE(seen);
    return result;
}

} // namespace

TEST_CASE(
    "Threads: every item is visited exactly once, for any count of threads, items and grain") {
    for (const size_t count : {1, 2, 3, 7}) {
        Threads threads(count);
        CHECK(threads.count() == count);
        for (const size_t items : {0, 1, 2, 5, 64, 1000}) {
            for (const size_t grain : {1, 3, 64, 5000}) {
                CHECK(visits(threads, items, grain) == std::vector<int>(items, 1));
            }
        }
    }
}

TEST_CASE("Threads: a grain of zero counts as one, and a huge one does not overflow") {
    Threads threads(3);
    int items = 0;
    threads.run(1, 0, [&](size_t begin, size_t end) { items += static_cast<int>(end - begin); });
    CHECK(items == 1);
    CHECK(visits(threads, 10, SIZE_MAX) == std::vector<int>(10, 1));
}

TEST_CASE("Threads: the last range of a huge count of items does not wrap around") {
    Threads threads(2);
    std::atomic<uint64_t> covered{0};
    const size_t grain = SIZE_MAX / 4;
    threads.run(SIZE_MAX, grain, [&](size_t begin, size_t end) { covered += end - begin; });
    CHECK(covered == SIZE_MAX);
}

TEST_CASE("Threads: many short runs one after another lose nothing") {
    Threads threads(3);
    std::vector<uint64_t> sums(64, 0); // plain memory: each run must see the one before it
    for (int round = 0; round < 5000; ++round) {
        threads.run(sums.size(), 1, [&](size_t begin, size_t end) {
            for (size_t i = begin; i < end; ++i) {
                ++sums[i];
            }
        });
    }
    CHECK(sums == std::vector<uint64_t>(64, 5000));
}

TEST_CASE("Threads: several host threads may use one pool at once, and a run may be inside a run") {
    Threads threads(2);
    std::vector<std::thread> hosts;
    std::atomic<int> wrong{0};
    for (int host = 0; host < 3; ++host) {
        hosts.emplace_back([&] {
            for (int round = 0; round < 300; ++round) {
                std::atomic<size_t> inner{0};
                threads.run(8, 1, [&](size_t, size_t) {
                    threads.run(4, 1, [&](size_t begin, size_t end) { inner += end - begin; });
                });
                wrong += inner == 32 ? 0 : 1;
            }
        });
    }
    for (std::thread &host : hosts) {
        host.join();
    }
    CHECK(wrong == 0);
}

TEST_CASE("Threads: work is spread over the workers") {
    Threads threads(3);
    std::set<std::thread::id> ids;
    std::mutex mutex;
    for (int attempt = 0; attempt < 1000 && ids.size() < 3; ++attempt) {
        threads.run(3, 1, [&](size_t, size_t) {
            {
                const std::lock_guard lock(mutex);
                ids.insert(std::this_thread::get_id());
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        });
    }
    CHECK(ids.size() == 3);
}

TEST_CASE("Threads: workers block every signal that can be blocked") {
    Threads threads(2);
    const std::vector<int> open = on_a_worker(threads, [] {
        sigset_t mask;
        pthread_sigmask(SIG_SETMASK, nullptr, &mask);
        std::vector<int> unblocked;
        for (const int signal : {SIGINT, SIGTERM, SIGALRM, SIGUSR1, SIGCHLD, SIGPROF}) {
            if (sigismember(&mask, signal) == 0) {
                unblocked.push_back(signal);
            }
        }
        return unblocked;
    });
    CHECK(open.empty());
    sigset_t own;
    pthread_sigmask(SIG_SETMASK, nullptr, &own);
    CHECK(sigismember(&own, SIGINT) == 0); // the host's own mask is as it was
}

TEST_CASE("Threads: C2: workers flush denormals to zero, whatever the host does") {
    Threads threads(2);
    const auto flushes = [] {
        volatile float tiny = 0x1p-126F;
        volatile float half = 0.5F;
        return static_cast<int>(tiny * half == 0.0F);
    };
    CHECK(flushes() == 0);
    CHECK(on_a_worker(threads, flushes) == 1);
    CHECK(flushes() == 0);
}

TEST_CASE("Threads: a count of 0 means the cores that this thread may use") {
    cpu_set_t saved;
    CPU_ZERO(&saved);
    REQUIRE(sched_getaffinity(0, sizeof saved, &saved) == 0);
    CHECK(Threads(0).count() == static_cast<size_t>(CPU_COUNT(&saved)));
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core) {
        if (CPU_ISSET(core, &saved)) {
            CPU_SET(core, &one);
        }
    }
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    CHECK(Threads(0).count() == 1);
    REQUIRE(sched_setaffinity(0, sizeof saved, &saved) == 0);
}

TEST_CASE("Threads: an impossible count of threads is refused") {
    expect_error(Status::invalid_argument, {"1024", "1025"}, [] { Threads threads(1025); });
}

// ThreadSanitizer cannot follow a process that forks while it has threads, and the address
// sanitizer ends a process that is refused memory.
#ifndef STASIS_THREAD_SANITIZER

namespace {

// Runs `body` in a forked child that is killed if it hangs; true if it returned true.
template <typename Body> bool in_child(const Body &body) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(20);
        _exit(body() ? 0 : 1);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

} // namespace

TEST_CASE("Threads: destroying a pool in a forked child does not hang") {
    auto threads = std::make_unique<Threads>(3);
    CHECK(visits(*threads, 100, 1) == std::vector<int>(100, 1));
    CHECK(in_child([&] {
        std::atomic<size_t> items{0};
        threads->run(100, 1, [&](size_t begin, size_t end) { items += end - begin; });
        threads.reset();
        return items == 100;
    }));
    CHECK(visits(*threads, 100, 1) == std::vector<int>(100, 1)); // the parent's is unharmed
}

#ifndef STASIS_ADDRESS_SANITIZER

TEST_CASE("Threads: a pool that cannot start all its threads ends those it started") {
    CHECK(in_child([] {
        const auto live = [] {
            const std::filesystem::directory_iterator tasks("/proc/self/task");
            return std::distance(begin(tasks), end(tasks));
        };
        std::ifstream status("/proc/self/statm");
        size_t pages = 0;
        status >> pages;
        // Memory for a few stacks of 8 MiB only.
        const rlim_t room = pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) + (64U << 20);
        const rlimit limit{room, room};
        rlimit stack{8U << 20, 8U << 20};
        if (setrlimit(RLIMIT_STACK, &stack) != 0 || setrlimit(RLIMIT_AS, &limit) != 0) {
            return false;
        }
        try {
            Threads threads(Threads::kCountMax);
        } catch (const Error &error) {
            return error.status() == Status::no_memory && live() == 1;
        }
        return false;
    }));
}

#endif

#endif

TEST_CASE("Threads: memory comes aligned, from the C heap or the host's allocator") {
    const Memory heap;
    for (const size_t size_bytes : {0, 1, 63, 64, 65, 100000}) {
        void *memory = heap.take(size_bytes);
        CHECK(reinterpret_cast<uintptr_t>(memory) % 64 == 0);
        std::memset(memory, 1, size_bytes);
        heap.give_back(memory, size_bytes);
    }
    expect_error(Status::no_memory, {std::to_string(SIZE_MAX)}, [&] { heap.take(SIZE_MAX); });

    struct Host {
        size_t taken = 0, given = 0;
        alignas(64) char block[256];
        size_t offset = 0;
        bool refuse = false;
    } host;
    Memory memory;
    memory.user = &host;
    memory.allocate = [](void *user, size_t size_bytes, size_t alignment) -> void * {
        auto *self = static_cast<Host *>(user);
        CHECK(alignment == 64);
        self->taken += size_bytes;
        return self->refuse ? nullptr : self->block + self->offset;
    };
    memory.deallocate = [](void *user, void *, size_t size_bytes, size_t alignment) {
        CHECK(alignment == 64);
        static_cast<Host *>(user)->given += size_bytes;
    };
    void *block = memory.take(100);
    CHECK(block == host.block);
    memory.give_back(block, 100);
    CHECK(host.given == 100);
    host.offset = 8;
    expect_error(Status::invalid_argument, {"aligned"}, [&] { memory.take(50); });
    CHECK(host.given == 150);
    host.refuse = true;
    expect_error(Status::no_memory, {"50 bytes"}, [&] { memory.take(50); });
    CHECK(host.given == 150);
}

} // namespace stasis
