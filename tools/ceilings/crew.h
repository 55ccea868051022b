// Threads that begin the same piece of work at the same moment, and the time until the last is
// done.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace command::ceilings {

// Calls work(i) for i below `threads`, each on a thread of its own, `passes` times; returns the
// shortest time of a pass in seconds. All wait for each other before a pass.
template <typename Work> double best_seconds(unsigned threads, int passes, Work work) {
    std::atomic<unsigned> arrived{0};
    const auto meet = [&](unsigned count) { // everyone's count-th meeting
        ++arrived;
        while (arrived < count * threads) {
            std::this_thread::yield();
        }
    };
    double best = 0;
    const auto member = [&](unsigned index) {
        unsigned meetings = 0;
        for (int pass = 0; pass < passes; ++pass) {
            meet(++meetings);
            const auto start = std::chrono::steady_clock::now();
            work(index);
            meet(++meetings);
            const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
            if (index == 0 && (pass == 0 || time.count() < best)) {
                best = time.count();
            }
        }
    };
    std::vector<std::jthread> others;
    for (unsigned i = 1; i < threads; ++i) {
        others.emplace_back(member, i);
    }
    member(0);
    return best;
}

} // namespace command::ceilings
