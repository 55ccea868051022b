// Threads that begin the same piece of work at the same moment, and the time until the last is
// done.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace command::ceilings {

// Calls work(i) for i below `threads`, each on a thread of its own, `passes` times; returns the
// time of each pass in seconds, from the first that began to the last that was done. All wait for
// each other before and after a pass.
template <typename Work> std::vector<double> pass_seconds(unsigned threads, int passes, Work work) {
    using Clock = std::chrono::steady_clock;
    struct Span {
        Clock::time_point begin, end;
    };
    std::vector<Span> spans(threads);
    std::atomic<unsigned> arrived{0};
    const auto meet = [&](unsigned count) { // everyone's count-th meeting
        ++arrived;
        while (arrived < count * threads) {
            std::this_thread::yield();
        }
    };
    std::vector<double> seconds;
    const auto member = [&](unsigned index) {
        unsigned meetings = 0;
        for (int pass = 0; pass < passes; ++pass) {
            meet(++meetings);
            const Clock::time_point begin = Clock::now();
            work(index);
            spans[index] = {begin, Clock::now()};
            meet(++meetings);
            if (index == 0) {
                Span all = spans[0];
                for (const Span &span : spans) {
                    all = {std::min(all.begin, span.begin), std::max(all.end, span.end)};
                }
                seconds.push_back(std::chrono::duration<double>(all.end - all.begin).count());
            }
        }
    };
    std::vector<std::jthread> others;
    for (unsigned i = 1; i < threads; ++i) {
        others.emplace_back(member, i);
    }
    member(0);
    others.clear();
    return seconds;
}

} // namespace command::ceilings
