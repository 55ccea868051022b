// The grid of fibers that runs device kernels on the host: that its threads, barriers, exchanges
// and shared memory are those of CUDA, and that what a kernel must not do ends the program.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <numeric>

#include "runtime/kernels/cuda/grid.h"
#include "tests/kernels/inputs.h"

namespace device = stasis::kernels::device;
namespace host_grid = stasis::kernels::device::host_grid;

TEST_CASE("device grid: every thread of every block runs once") {
    constexpr unsigned kThreads = 96;
    std::vector<int> runs(2 * 3 * 2 * kThreads);
    host_grid::run(dim3(2, 3, 2), kThreads, 0, [&] {
        const unsigned at = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
        ++runs[at * blockDim.x + threadIdx.x];
    });
    CHECK(std::count(runs.begin(), runs.end(), 1) == static_cast<long>(runs.size()));
}

TEST_CASE("device grid: what is written before a barrier is read after it") {
    constexpr unsigned kThreads = 256;
    for (const unsigned blocks : {1U, 3U}) {
        std::vector<unsigned> sums(blocks * kThreads);
        host_grid::run(dim3(blocks), kThreads, 2 * kThreads * sizeof(unsigned), [&] {
            auto *from = device::dynamic_shared<unsigned>(), *to = from + kThreads;
            from[threadIdx.x] = threadIdx.x + blockIdx.x;
            for (unsigned by = 1; by < kThreads; by *= 2) { // sums up to each thread
                __syncthreads();
                to[threadIdx.x] =
                    from[threadIdx.x] + (threadIdx.x >= by ? from[threadIdx.x - by] : 0);
                __syncthreads();
                from[threadIdx.x] = to[threadIdx.x];
            }
            sums[blockIdx.x * kThreads + threadIdx.x] = from[threadIdx.x];
        });
        size_t wrong = 0;
        for (unsigned i = 0; i < sums.size(); ++i) {
            const unsigned t = i % kThreads;
            wrong += sums[i] == t * (t + 1) / 2 + (t + 1) * (i / kThreads) ? 0 : 1;
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("device grid: warps exchange values on their own, as often as each likes") {
    constexpr unsigned kThreads = 128;
    std::vector<float> sums(kThreads);
    std::vector<uint64_t> down(kThreads), from(kThreads);
    host_grid::run(dim3(1), kThreads, 0, [&] {
        const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        float sum = static_cast<float>(threadIdx.x);
        for (unsigned turn = 0; turn <= warp; ++turn) { // a different number of times in each warp
            for (int mask = 16; mask > 0; mask /= 2) {
                sum += __shfl_xor_sync(device::kAllLanes, sum, mask);
            }
        }
        sums[threadIdx.x] = sum;
        if (warp % 2 == 0) { // some warps do nothing
            down[threadIdx.x] = __shfl_down_sync(device::kAllLanes, uint64_t{lane} << 40, 3U);
            __syncwarp();
            from[threadIdx.x] = __shfl_sync(device::kAllLanes, uint64_t{threadIdx.x}, 35);
        }
        __syncthreads();
    });
    size_t wrong = 0;
    for (unsigned i = 0; i < kThreads; ++i) {
        const unsigned lane = i % 32, warp = i / 32;
        float sum = static_cast<float>(31 * 32 / 2 + 32 * 32 * warp);
        for (unsigned turn = 0; turn < warp; ++turn) {
            sum *= 32.0F;
        }
        wrong += sums[i] == sum ? 0 : 1;
        const bool idle = warp % 2 != 0;
        wrong += down[i] == (idle ? 0 : uint64_t{lane + 3 < 32 ? lane + 3 : lane} << 40) ? 0 : 1;
        wrong += from[i] == (idle ? 0 : warp * 32 + 3) ? 0 : 1;
    }
    CHECK(wrong == 0);
}

TEST_CASE("device grid: warps take turns in the order in which they pass them") {
    constexpr unsigned kThreads = 128, kWarps = kThreads / 32, kRounds = 5;
    std::vector<unsigned> order;
    host_grid::run(dim3(2), kThreads, 32 * sizeof(unsigned), [&] {
        auto *last = device::dynamic_shared<unsigned>();
        const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        for (unsigned turn = kWarps - 1 - warp; turn < kRounds * kWarps; turn += kWarps) {
            if (turn != 0) { // the last warp begins
                device::await_turn(turn % kWarps);
            }
            if (lane == 0) {
                order.push_back(turn);
            }
            last[lane] = turn == 0 ? 0 : last[lane] + 1;
            if (last[lane] != turn) {
                order.push_back(turn); // which is one too many
            }
            if (turn + 1 < kRounds * kWarps) {
                device::pass_turn((turn + 1) % kWarps);
            }
        }
        __syncthreads();
    });
    std::vector<unsigned> expected(2 * size_t{kRounds} * kWarps);
    for (size_t i = 0; i < expected.size(); ++i) {
        expected[i] = static_cast<unsigned>(i) % (kRounds * kWarps);
    }
    CHECK(order == expected);
}

TEST_CASE("device grid: a block hears of any thread that says yes, in every round of its own") {
    constexpr unsigned kThreads = 96, kRounds = 9;
    std::vector<int> heard(kThreads * kRounds);
    host_grid::run(dim3(2), kThreads, 0, [&] {
        for (unsigned round = 0; round < kRounds; ++round) {
            if (round % 4 == 3) {
                __syncthreads(); // counts as no round of it
            }
            const bool says = round % 3 == 1 && threadIdx.x == (round * 37) % kThreads;
            heard[threadIdx.x * kRounds + round] = __syncthreads_or(says ? 7 : 0);
        }
    });
    size_t wrong = 0;
    for (unsigned i = 0; i < heard.size(); ++i) {
        wrong += (heard[i] != 0) == (i % kRounds % 3 == 1) ? 0 : 1;
    }
    CHECK(wrong == 0);
}

TEST_CASE("device grid: shared memory is fresh for every block, and NaN") {
    size_t wrong = 0;
    for (int launch = 0; launch < 2; ++launch) {
        host_grid::run(dim3(3), 32, 32 * sizeof(float), [&] {
            auto *shared = device::dynamic_shared<float>();
            wrong += shared[threadIdx.x] != shared[threadIdx.x] ? 0 : 1;
            __syncwarp();
            shared[threadIdx.x] = 1.0F;
        });
    }
    CHECK(wrong == 0);
}

namespace {

// What a kernel says as it ends its process; empty if it does not.
std::string last_words(unsigned threads, size_t shared_bytes, const std::function<void()> &kernel) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        std::signal(SIGABRT, SIG_DFL); // doctest has its own
        dup2(ends[1], STDERR_FILENO);
        host_grid::run(dim3(2), threads, shared_bytes, kernel);
        _exit(0);
    }
    close(ends[1]);
    std::string words;
    char buffer[512];
    for (ssize_t size = 0; (size = read(ends[0], buffer, sizeof buffer)) > 0;) {
        words.append(buffer, static_cast<size_t>(size));
    }
    close(ends[0]);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT ? words : "";
}

bool has(const std::string &words, const char *what) {
    return words.find(what) != std::string::npos;
}

} // namespace

TEST_CASE("device grid: what a kernel must not do ends the program and says where") {
    const std::string barrier = last_words(64, 0, [] {
        if (blockIdx.x == 1 && threadIdx.x < 63) {
            __syncthreads();
        }
    });
    CHECK(has(barrier, "block (1, 0, 0)"));
    CHECK(has(barrier, "wait at a barrier, others have ended"));
    const std::string warp = last_words(64, 0, [] { // one lane is missing
        if (threadIdx.x != 40) {
            __shfl_xor_sync(device::kAllLanes, 1, 1);
        }
    });
    CHECK(has(warp, "some lanes of a warp exchange values"));
    const std::string both = last_words(32, 0, [] { // one is at the block's barrier
        if (threadIdx.x == 0) {
            __syncthreads();
        } else {
            __syncwarp();
        }
    });
    CHECK(has(both, "some lanes of a warp exchange values"));
    const std::string turn = last_words(64, 0, [] {
        if (threadIdx.x < 32) {
            device::await_turn(0);
        } else if (threadIdx.x < 63) { // one lane does not pass it
            device::pass_turn(0);
        }
    });
    CHECK(has(turn, "a warp awaits a turn that no other passes"));
    const auto nothing = [] {};
    CHECK(has(last_words(33, 0, nothing), "no device would take"));
    CHECK(has(last_words(1056, 0, nothing), "no device would take"));
    CHECK(has(last_words(0, 0, nothing), "no device would take"));
    CHECK(has(last_words(32, 227 * 1024 + 1, nothing), "no device would take"));
    CHECK(last_words(1024, 227 * 1024, nothing).empty()); // the most
}

TEST_CASE("device grid: a kernel of which a thread does not wait for the work before ends it too") {
    const auto waits = [](unsigned left_out) {
        return [left_out] {
            if (threadIdx.x != left_out) {
                device::wait_for_previous();
            }
            host_grid::end_of_kernel(); // as behind every kernel that is enqueued
        };
    };
    CHECK(has(last_words(64, 0, waits(63)), "thread 63: a kernel ends without having waited"));
    CHECK(last_words(64, 0, waits(64)).empty());
}

TEST_CASE("device grid: a thread is told of as it waits, once it has begun") {
    std::vector<int> began(64), waited(64);
    host_grid::on_thread = [&](bool at_wait) { ++(at_wait ? waited : began)[threadIdx.x]; };
    host_grid::run(dim3(3), 64, 0, [] { device::wait_for_previous(); });
    host_grid::on_thread = nullptr;
    CHECK(began == std::vector<int>(64, 3));
    CHECK(waited == std::vector<int>(64, 3));
}
