// Ratio and speed of saving and loading recurrent states, and of their digest:
//     bench_recurrent FOLDER [THREADS]
// The states are those of a delta rule (C11) over random keys and values, heads with decays of
// their own: 24 layers of 32 value heads of 128 by 128. Speeds are the best of 5 passes, in GB/s of
// raw numbers.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "format/reader.h"
#include "format/recurrent.h"
#include "format/state/error.h"
#include "format/writer.h"

using namespace stasis;
using namespace stasis::format;

namespace {

constexpr size_t kDim = 128, kTokens = 300;

// S of one head after some tokens; keys of length 1.
void run_head(std::mt19937 &random, float *s) {
    std::normal_distribution<float> normal;
    const float mean_decay =
        1.0F - std::exp2(-2.0F - 8.0F * static_cast<float>(random() % 100) / 99);
    float k[kDim];
    for (size_t token = 0; token < kTokens; ++token) {
        float length = 0;
        for (float &each : k) {
            each = normal(random);
            length += each * each;
        }
        const float decay = std::pow(mean_decay, std::exp(normal(random)));
        const float beta = 1 / (1 + std::exp(-normal(random)));
        for (size_t j = 0; j < kDim; ++j) {
            float known = 0;
            for (size_t i = 0; i < kDim; ++i) {
                s[i * kDim + j] *= decay;
                known = std::fma(s[i * kDim + j], k[i] / std::sqrt(length), known);
            }
            const float change = (normal(random) - known) * beta;
            for (size_t i = 0; i < kDim; ++i) {
                s[i * kDim + j] = std::fma(k[i] / std::sqrt(length), change, s[i * kDim + j]);
            }
        }
    }
}

// One layer is computed; the others are its bits with other signs, which no codec finds.
std::vector<float> numbers_of(const RecurrentShape &shape) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> numbers(shape.numbers());
    for (size_t i = 0; i < shape.inputs_size(); ++i) {
        numbers[i] = normal(random) * std::exp2(static_cast<float>(i % 1024 % 7));
    }
    for (uint32_t head = 0; head < shape.value_heads; ++head) {
        run_head(random, numbers.data() + shape.inputs_size() + head * kDim * kDim);
    }
    for (size_t i = shape.state_size(); i < numbers.size(); ++i) {
        const float factor = 1.0F + 0x1p-20F * static_cast<float>(random() % 4096);
        numbers[i] = (random() & 1 ? -factor : factor) * numbers[i % shape.state_size()];
    }
    return numbers;
}

State state_of(uint64_t position) {
    State state;
    state.contract = {1, 1, 1, 1, 0};
    state.layers = 25;
    state.kv_heads = state.hidden_size = state.vocabulary = 1;
    state.head_dim = 1;
    state.page_positions = 64;
    state.groups = {{0, {24}}};
    state.model.attention.resize(25);
    state.model.mlp.resize(25);
    state.samplings.resize(1);
    state.capacity = position;
    state.log.resize(position);
    state.hidden = {0x3F80};
    state.recurrent = {{}, 16, 32, kDim, kDim, 4};
    for (uint32_t layer = 0; layer < 24; ++layer) {
        state.recurrent.layers.push_back(layer);
    }
    static const std::vector<uint16_t> page(128);
    state.pages = {{{static_cast<uint32_t>(position),
                     page_digest({0, 0, page.data(), 2, 64, position, 1}), page.data()}}};
    return state;
}

unsigned threads = 1;

Parallel all_threads() {
    if (threads == 1) {
        return {};
    }
    return {nullptr, [](void *, size_t count, void (*work)(void *, size_t), void *data) {
                std::atomic<size_t> next{0};
                std::vector<std::thread> all;
                for (unsigned i = 0; i < threads; ++i) {
                    all.emplace_back([&] {
                        for (size_t at = next++; at < count; at = next++) {
                            work(data, at);
                        }
                    });
                }
                for (std::thread &each : all) {
                    each.join();
                }
            }};
}

template <typename Work> void time(const char *what, double bytes, const Work &work) {
    double best = 1e9;
    for (int i = 0; i < 5; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        work();
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
        best = std::min(best, taken.count());
    }
    std::printf("%-24s %7.1f ms  %6.2f GB/s\n", what, 1e3 * best, bytes / best / 1e9);
}

void measure(const std::string &path, State &state, const std::vector<float> &numbers) {
    const double bytes = static_cast<double>(state_bytes(state));
    for (const Codec codec : {Codec::raw, Codec::zstd}) {
        const char *const name = codec == Codec::raw ? "raw" : "zstd";
        SaveOptions options;
        options.replace = true;
        options.codec = codec;
        options.parallel = all_threads();
        std::printf("%s\n", name);
        time("  save", bytes, [&] { save(state, path, options); });
        const auto snapshot = Snapshot::open(path);
        std::printf("  %.1f %% of %.1f MiB\n",
                    100 * static_cast<double>(snapshot->layout().states[0].stored_bytes) / bytes,
                    bytes / (1 << 20));
        std::vector<float> read(numbers.size());
        time("  read_state", bytes, [&] { snapshot->read_state(0, read.data(), all_threads()); });
        time("  compact", bytes, [&] { compact(path, options); });
    }
}

} // namespace

int main(int count, char **arguments) {
    if (count < 2) {
        return 2;
    }
    threads = count > 2 ? static_cast<unsigned>(std::atoi(arguments[2])) : 1;
    const std::string path = std::string(arguments[1]) + "/bench.stasis";
    try {
        State state = state_of(10);
        const std::vector<float> numbers = numbers_of(state.recurrent);
        state.states = {{10, {}, numbers.data()}};
        const double bytes = static_cast<double>(state_bytes(state));
        time("digest, one thread", bytes, [&] {
            state.states[0].digest = recurrent_state_digest(10, numbers.data(), numbers.size());
        });
        state.digest = state_digest(state);
        measure(path, state, numbers);
    } catch (const Error &error) {
        std::printf("%s\n", error.what());
        return 1;
    }
    return 0;
}
