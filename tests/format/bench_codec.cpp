// Ratio and speed of the codec on the keys and values of snapshots:
//     bench_codec FILE ...
// Pages are cut into runs of so many slots, as commits of so many tokens would store them. Speeds
// are the best of 15 passes over everything in the file, in GB/s of raw KV.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>

#include "format/codec.h"
#include "format/pages.h"
#include "format/reader.h"
#include "format/state/error.h"

using namespace stasis;
using namespace stasis::format;

namespace {

struct Run {
    RunShape shape;
    std::vector<uint16_t> numbers, decoded;
    std::vector<uint8_t> coded;
    size_t coded_bytes = 0;
};

std::vector<Run> cut(const State &state, size_t slots) {
    std::vector<Run> runs;
    for (size_t group = 0; group < state.groups.size(); ++group) {
        const RunShape shape{page_rows(state, group), slots, state.head_dim_of(group)};
        for (const Page &page : state.pages[group]) {
            for (size_t slot = 0; page.data != nullptr && slot + slots <= page.valid;
                 slot += slots) {
                Run run{shape, {}, std::vector<uint16_t>(shape.numbers()), {}};
                for (size_t row = 0; row < shape.rows; ++row) {
                    const uint16_t *begin =
                        page.data + (row * state.page_positions + slot) * state.head_dim_of(group);
                    run.numbers.insert(run.numbers.end(), begin,
                                       begin + slots * state.head_dim_of(group));
                }
                run.coded.resize(encoded_bound(shape));
                runs.push_back(std::move(run));
            }
        }
    }
    return runs;
}

// Seconds of the fastest of some passes in which `threads` take frames in turn.
double fastest(std::vector<Run> &runs, unsigned threads,
               const std::function<void(Run &, size_t)> &code) {
    std::vector<std::pair<Run *, size_t>> frames;
    for (Run &run : runs) {
        for (size_t i = 0; i < frame_count(run.shape); ++i) {
            frames.emplace_back(&run, i);
        }
    }
    double best = 1e9;
    for (int pass = 0; pass < 15; ++pass) {
        std::atomic<size_t> next{0};
        const auto work = [&] {
            for (size_t i = next++; i < frames.size(); i = next++) {
                code(*frames[i].first, frames[i].second);
            }
        };
        const auto begin = std::chrono::steady_clock::now();
        std::vector<std::thread> others;
        for (unsigned i = 1; i < threads; ++i) {
            others.emplace_back(work);
        }
        work();
        for (std::thread &other : others) {
            other.join();
        }
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        best = std::min(best, took.count());
    }
    return best;
}

bool measure(const State &state, size_t slots) {
    std::vector<Run> runs = cut(state, slots);
    FrameCoder coder;
    size_t raw_bytes = 0;
    for (const Run &run : runs) {
        raw_bytes += run.shape.bytes();
    }
    if (runs.empty()) {
        return true;
    }
    double rates[2][2]; // [threads - 1][encode, decode]
    size_t coded_bytes = 0;
    for (unsigned threads = 1; threads <= 2; ++threads) {
        const auto rate = [&](const std::function<void(Run &, size_t)> &code) {
            return static_cast<double>(raw_bytes) / fastest(runs, threads, code) / 1e9;
        };
        rates[threads - 1][0] = rate([&](Run &run, size_t index) {
            coder.encode(run.shape, index, run.numbers.data(), run.coded.data());
        });
        coded_bytes = 0;
        for (Run &run : runs) {
            run.coded_bytes = close_run(run.shape, run.coded.data());
            coded_bytes += run.coded_bytes;
        }
        rates[threads - 1][1] = rate([&](Run &run, size_t index) {
            coder.decode(run.shape, index, run.coded.data(), run.coded_bytes, run.decoded.data());
        });
        for (const Run &run : runs) {
            if (run.decoded != run.numbers) {
                std::printf("a run of %zu slots came back otherwise\n", slots);
                return false;
            }
        }
    }
    std::printf("%5zu  %6zu  %11zu  %6.4f  %6.2f  %6.2f  %6.2f  %6.2f\n", slots, runs.size(),
                raw_bytes / runs.size(),
                static_cast<double>(coded_bytes) / static_cast<double>(raw_bytes), rates[0][0],
                rates[0][1], rates[1][0], rates[1][1]);
    return true;
}

} // namespace

int main(int argc, char **argv) {
    for (int i = 1; i < argc; ++i) {
        try {
            const State state = load(argv[i], {});
            std::printf("%s\n%40s%16s\n%5s  %6s  %11s  %6s  %6s  %6s  %6s  %6s\n", argv[i],
                        "1 thread", "2 threads", "slots", "runs", "bytes", "ratio", "enc", "dec",
                        "enc", "dec");
            for (const size_t slots : {64, 60, 16, 8, 1}) {
                if (!measure(state, slots)) {
                    return 1;
                }
            }
        } catch (const Error &error) {
            std::printf("%s: %s\n", argv[i], error.what());
            return 1;
        }
    }
    return 0;
}
