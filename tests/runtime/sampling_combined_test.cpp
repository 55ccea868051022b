// Sampling (C7): all steps together against the plain restatement in sampling_naive.h, draw by
// draw, with ties and extremes everywhere, and at the size of a real vocabulary.
#include <doctest/doctest.h>

#include <array>
#include <cfloat>
#include <initializer_list>
#include <limits>
#include <random>
#include <vector>

#include "runtime/kernels/environment.h"
#include "runtime/sampling/sampling.h"
#include "sampling_naive.h"

using namespace stasis;

namespace {

// Everything of version 2, each part off every other time.
SamplingV2 some_v2(std::mt19937_64 &generator, size_t vocabulary) {
    const auto pick = [&](std::initializer_list<float> values) {
        return generator() % 2 == 0 ? 0.0F : values.begin()[generator() % values.size()];
    };
    const auto or_usual = [](float value, float usual) { return value == 0 ? usual : value; };
    SamplingV2 v2;
    v2.typical_p = or_usual(pick({0.9F, 0.5F, 0.2F, 0.01F, 0.999F, FLT_MIN}), 1);
    v2.top_n_sigma = pick({1.0F, 0.5F, 2.0F, 2.5F, 1e-3F, 50.0F, FLT_MAX});
    v2.xtc_probability = pick({1.0F, 1.0F, 0.5F, 0.1F, 1e-12F});
    v2.xtc_threshold = or_usual(pick({0.01F, 0.03F, 0.2F, 0.25F, 0.5F, FLT_MIN}), 0.1F);
    v2.dry_multiplier = pick({0.8F, 0.8F, 5.0F, 1e-3F, FLT_MIN, FLT_MAX});
    v2.dry_base = or_usual(pick({1.0F, 1.1F, 2.0F, 40.0F, FLT_MAX}), 1.75F);
    v2.dry_allowed_length = 1 + static_cast<uint32_t>(generator() % 4);
    v2.dry_range = static_cast<uint32_t>(pick({1, 3, 10, 25}));
    v2.min_keep = static_cast<uint32_t>(or_usual(pick({2, 3, 10, 1000}), 1));
    for (uint32_t token = 0; token < vocabulary; ++token) {
        if (generator() % 6 == 0) {
            v2.dry_breakers.push_back(token);
        }
    }
    return v2;
}

// Tokens that repeat what came before, now and then with one of another kind.
std::vector<uint32_t> repeating(std::mt19937_64 &generator, size_t vocabulary) {
    std::vector<uint32_t> history(generator() % 60);
    const size_t period = 1 + generator() % 12;
    for (size_t i = 0; i < history.size(); ++i) {
        history[i] = i < period || generator() % 10 == 0
                         ? static_cast<uint32_t>(generator() % std::min<size_t>(vocabulary, 9))
                         : history[i - period];
    }
    return history;
}

} // namespace

TEST_CASE("sample: every combination of settings draws what the plain restatement draws") {
    const kernels::FloatEnvironment environment;
    std::mt19937_64 generator(2024);
    const auto pick = [&](std::initializer_list<float> values) {
        return values.begin()[generator() % values.size()];
    };
    SamplingScratch scratch;
    for (int round = 0; round < 40000; ++round) {
        CAPTURE(round);
        // Few distinct values, so that ties are everywhere, near and far from the best.
        const float unit = pick({0.0F, 1.0F / 64, 0.5F, 3.0F, 1e37F});
        std::vector<float> logits(1 + generator() % 60);
        for (float &l : logits) {
            l = static_cast<float>(static_cast<int>(generator() % 41) - 20) * unit;
        }
        Sampling sampling;
        sampling.seed = generator();
        sampling.temperature = pick({0.0F, FLT_MIN, 1e-3F, 0.7F, 1.0F, 1.0F, 2.5F, 1e20F, FLT_MAX});
        sampling.top_k = static_cast<uint32_t>(pick({0, 0, 1, 2, 5, 40, 1000}));
        sampling.top_p = pick({1.0F, 1.0F, 0.999F, 0.9F, 0.5F, 0.1F, 1e-12F});
        sampling.min_p = pick({0.0F, 0.0F, 1e-13F, 0.01F, 0.2F, 0.99F, 1.0F});
        sampling.repetition_penalty = pick({1.0F, 1.0F, 1.1F, 2.0F, 0.5F, FLT_MIN, FLT_MAX});
        sampling.frequency_penalty = pick({0.0F, 0.0F, 0.3F, -0.7F, FLT_MAX, -FLT_MAX});
        sampling.presence_penalty = pick({0.0F, 0.0F, 0.4F, -1.5F, FLT_MAX, -FLT_MAX});
        for (uint32_t token = 1; token < logits.size(); ++token) { // token 0 is never removed
            if (generator() % 8 == 0) {
                sampling.bias.emplace_back(
                    token, pick({-std::numeric_limits<float>::infinity(), 0.5F, -3.0F, FLT_MAX}));
            }
        }
        std::vector<uint32_t> history(generator() % 30);
        for (uint32_t &token : history) {
            token = static_cast<uint32_t>(generator() % logits.size());
        }
        if (round % 4 != 0) {
            sampling.v2 = some_v2(generator, logits.size());
            sampling.penalty_window = static_cast<uint32_t>(pick({0, 0, 1, 7, 64}));
        }
        if (round % 2 != 0) {
            history = repeating(generator, logits.size());
        }
        check_sampling(sampling, static_cast<uint32_t>(logits.size()));
        const uint64_t position = generator();
        REQUIRE(sample(logits, sampling, position, history, scratch) ==
                naive::sample(logits, sampling, position, history));
    }
}

TEST_CASE("sample: a large vocabulary draws what the plain restatement draws, and allocates once") {
    const kernels::FloatEnvironment environment;
    constexpr size_t n = 262144;
    std::vector<std::vector<float>> rows(5, std::vector<float>(n));
    std::mt19937_64 generator(9);
    for (size_t i = 0; i < n; ++i) {
        rows[0][i] = static_cast<float>(static_cast<int64_t>(generator() % 4096) - 2048) / 100.0F;
        rows[1][i] = static_cast<float>(i) / 16384.0F; // each token better than all before
        rows[2][i] = -static_cast<float>(i) / 1024.0F;
        rows[3][i] = 1.5F;
        rows[4][i] = static_cast<float>(generator() % 65536) / 0x1p23F;
    }
    std::vector<float> peak(n, -100.0F); // leaves one candidate
    peak[3] = 100.0F;
    Sampling warm;
    warm.temperature = 1.0F;
    warm.repetition_penalty = 1.1F;
    warm.v2.dry_multiplier = 1;
    SamplingScratch scratch;
    const std::vector<uint32_t> history{5, 77, 262143, 5, 77};
    sample(peak, warm, 0, history, scratch);
    const auto storage = [&] {
        return std::array<const void *, 6>{scratch.logits.data(), scratch.scaled.data(),
                                           scratch.powers.data(), scratch.candidates.data(),
                                           scratch.counts.data(), scratch.matches.data()};
    };
    const auto before = storage();
    for (const auto &row : rows) {
        for (const uint32_t top_k : {0U, 1U, 50U, 5000U}) {
            for (const float top_p : {1.0F, 0.95F}) {
                Sampling sampling = warm;
                sampling.top_k = top_k;
                sampling.top_p = top_p;
                const uint64_t position = generator();
                REQUIRE(sample(row, sampling, position, history, scratch) ==
                        naive::sample(row, sampling, position, history));
            }
        }
        Sampling sampling = warm; // all of version 2
        sampling.v2 = {0.9F, 3.0F, 1.0F, 1e-6F, 1.0F, 1.75F, 1, 0, 3, {6}};
        const uint64_t position = generator();
        REQUIRE(sample(row, sampling, position, history, scratch) ==
                naive::sample(row, sampling, position, history));
    }
    CHECK(storage() == before);
}

TEST_CASE("sample: top_k among nearly equal logits draws what the plain restatement draws") {
    const kernels::FloatEnvironment environment;
    std::mt19937_64 generator(12);
    SamplingScratch scratch;
    Sampling sampling;
    sampling.temperature = 1.0F;
    std::vector<float> logits(20000);
    for (int round = 0; round < 60; ++round) {
        for (float &l : logits) {
            l = static_cast<float>(generator() % 65536) / 0x1p23F;
        }
        sampling.top_k = 1 + static_cast<uint32_t>(generator() % 3000);
        const uint64_t position = generator();
        REQUIRE(sample(logits, sampling, position, {}, scratch) ==
                naive::sample(logits, sampling, position, {}));
    }
}

// One logit in five is 2.5 deviations above the rest, so that the last bit of the deviation, and
// with it the order of its sums, decides whether they stay.
TEST_CASE("sample: top_n_sigma adds up in the order of the contract, to the last bit") {
    const kernels::FloatEnvironment environment;
    std::mt19937_64 generator(77);
    SamplingScratch scratch;
    Sampling sampling;
    sampling.temperature = 100.0F;
    sampling.v2.top_n_sigma = 2.5F;
    size_t rest_stays = 0;
    for (int round = 0; round < 2000; ++round) {
        const float low = static_cast<float>(generator() % 10000) / 777.0F;
        const float high = low + static_cast<float>(1 + generator() % 10000) / 333.0F;
        std::vector<float> logits(5 * (1 + generator() % 12), low);
        for (size_t i = 0; i < logits.size(); i += 5) {
            logits[i + generator() % 5] = high;
        }
        sampling.seed = generator();
        for (uint64_t position = 0; position < 4; ++position) {
            const uint32_t token = sample(logits, sampling, position, {}, scratch);
            REQUIRE(token == naive::sample(logits, sampling, position, {}));
            rest_stays += logits[token] == low ? 1 : 0;
        }
    }
    CHECK(rest_stays > 500); // else nothing is decided
}
