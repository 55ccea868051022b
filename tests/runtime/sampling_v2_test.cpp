// The steps that version 2 of C7 added, each on cases worked out by hand from its definition.
// sampling_combined_test.cpp combines all steps.
#include <doctest/doctest.h>

#include <cfloat>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>

#include "format/state/error.h"
#include "runtime/kernels/environment.h"
#include "runtime/sampling/philox.h"
#include "runtime/sampling/sampling.h"
#include "tests/runtime/sampling_draws.h"

using namespace stasis;
using namespace stasis::test;

namespace {

using Log = std::vector<uint32_t>;

// Logits of a distribution.
std::vector<float> of(const std::vector<double> &probabilities) {
    std::vector<float> logits;
    for (const double p : probabilities) {
        logits.push_back(static_cast<float>(std::log(p)));
    }
    return logits;
}

Sampling warm() {
    Sampling sampling;
    sampling.temperature = 1.0F;
    return sampling;
}

} // namespace

TEST_CASE("sample: typical_p keeps what is nearest to the entropy in information") {
    // Entropy 1.75 bits; information 1, 2, 3, 3: distances 0.75, 0.25, 1.25, 1.25.
    const std::vector<float> logits = of({0.5, 0.25, 0.125, 0.125});
    Sampling sampling = warm();
    const auto kept = [&](float typical_p) {
        sampling.v2.typical_p = typical_p;
        return support(logits, sampling);
    };
    CHECK(kept(0.24F) == TokenSet{1});
    CHECK(kept(0.26F) == TokenSet{0, 1});
    CHECK(kept(0.74F) == TokenSet{0, 1});
    CHECK(kept(0.76F) == TokenSet{0, 1, 2});
    CHECK(kept(0.88F) == TokenSet{0, 1, 2, 3});
    CHECK(kept(1.0F) == TokenSet{0, 1, 2, 3});
    CHECK(kept(FLT_MIN) == TokenSet{1});
    sampling.v2.min_keep = 3;
    CHECK(kept(0.24F) == TokenSet{0, 1, 2});
    sampling.v2.min_keep = 1000;
    CHECK(kept(0.24F) == TokenSet{0, 1, 2, 3});
}

TEST_CASE("sample: typical_p may leave out the best; what follows looks at what is left") {
    // Entropy 2.52 bits; the best has 1.32, the others 3.32.
    const std::vector<float> logits = of({0.4, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1});
    Sampling sampling = warm();
    sampling.v2.typical_p = 0.29F;
    CHECK(support(logits, sampling) == TokenSet{1, 2, 3});
    sampling.min_p = 0.99F; // of the best that is left
    CHECK(support(logits, sampling) == TokenSet{1, 2, 3});
    sampling.min_p = 0;
    sampling.top_p = 0.6F;
    CHECK(support(logits, sampling) == TokenSet{1, 2});
    sampling.top_k = 2; // goes before: of 0.8 and 0.2 the first is nearer to the entropy
    CHECK(support(logits, sampling) == TokenSet{0});
}

TEST_CASE("sample: top_n_sigma leaves out logits by their standard deviation, at any temperature") {
    // Mean 1, deviation sqrt(3): 4 - 2.30 * sqrt(3) = 0.016, 4 - 2.31 * sqrt(3) < 0.
    Sampling sampling;
    for (const float temperature : {2.0F, 4.0F, 100.0F}) {
        sampling.temperature = temperature;
        for (const float n : {0.5F, 2.30F}) {
            sampling.v2.top_n_sigma = n;
            CHECK(support({0, 0, 0, 4}, sampling) == TokenSet{3});
        }
        sampling.v2.top_n_sigma = 2.31F;
        CHECK(support({0, 0, 0, 4}, sampling) == TokenSet{0, 1, 2, 3});
        sampling.v2.top_n_sigma = 2.30F; // a removed token does not count
        sampling.bias = {{4, -std::numeric_limits<float>::infinity()}};
        CHECK(support({0, 0, 0, 4, -90}, sampling) == TokenSet{3});
        sampling.bias.clear();
    }
    // Mean 1, deviation 1, exactly.
    sampling.v2.top_n_sigma = 2.0F;
    CHECK(support({0, 2}, sampling) == TokenSet{0, 1});
    sampling.v2.top_n_sigma = std::nextafter(2.0F, 0.0F);
    CHECK(support({0, 2}, sampling) == TokenSet{1});
    sampling.v2.top_n_sigma = 1e-30F;
    CHECK(support({3, 3, 3}, sampling) == TokenSet{0, 1, 2});
    sampling.v2.top_n_sigma = FLT_MAX;
    sampling.temperature = FLT_MAX;
    CHECK(support({FLT_MAX, 0, -FLT_MAX}, sampling) == TokenSet{0, 1, 2});
    sampling.temperature = 0;
    sampling.v2.top_n_sigma = 0.1F;
    CHECK(draw({1, 3, 2}, sampling) == 1);
}

TEST_CASE("sample: XTC leaves out what reaches the threshold, but for the last of it") {
    const std::vector<float> logits = of({0.4, 0.3, 0.2, 0.1});
    Sampling sampling = warm();
    sampling.v2.xtc_probability = 1;
    const auto kept = [&](float threshold, uint32_t min_keep = 1) {
        sampling.v2.xtc_threshold = threshold;
        sampling.v2.min_keep = min_keep;
        return support(logits, sampling);
    };
    CHECK(kept(0.15F) == TokenSet{2, 3});
    CHECK(kept(0.25F) == TokenSet{1, 2, 3});
    CHECK(kept(0.35F) == TokenSet{0, 1, 2, 3}); // one alone stays
    CHECK(kept(0.5F) == TokenSet{0, 1, 2, 3});
    CHECK(kept(FLT_MIN) == TokenSet{3});
    CHECK(kept(0.15F, 2) == TokenSet{2, 3});
    CHECK(kept(0.15F, 3) == TokenSet{0, 1, 2, 3}); // two would be left
    // A token that cannot be drawn (a weight of 0) is not kept either.
    sampling.v2.xtc_threshold = 0.4F;
    CHECK(support({0, 0, -27.9F, -27.9F}, sampling) == TokenSet{0, 1}); // min_keep 3
    // Among equal tokens the last one; shares are those of the tokens that the steps before have
    // kept.
    sampling.v2 = {};
    sampling.v2.xtc_probability = 1;
    sampling.v2.xtc_threshold = 0.5F;
    CHECK(support({1, 1}, sampling) == TokenSet{1});
    sampling.v2.xtc_threshold = 0.35F;
    sampling.top_k = 2; // 0.57 and 0.43
    CHECK(support(logits, sampling) == TokenSet{1});
}

TEST_CASE("sample: XTC's coin depends on seed and position alone, and is not the draw's") {
    const std::vector<float> logits = of({0.4, 0.3, 0.2, 0.1});
    Sampling sampling = warm(), never = warm(), always = warm();
    sampling.v2.xtc_probability = 0.5F;
    always.v2.xtc_probability = 1;
    size_t fallen = 0;
    for (uint64_t position = 0; position < 1000; ++position) {
        sampling.seed = never.seed = always.seed = position / 100;
        const bool falls = coin_bits(sampling.seed, position) < 0x80000000U;
        CHECK(draw(logits, sampling, position) == draw(logits, falls ? always : never, position));
        fallen += falls ? 1 : 0;
    }
    CHECK(fallen > 450);
    CHECK(fallen < 550);
    const auto block = philox4x32({0x9ABCDEF0, 0x12345678, 1, 0}, {0x76543210, 0xFEDCBA98});
    CHECK(coin_bits(0xFEDCBA9876543210U, 0x123456789ABCDEF0U) == block[0]);
}

TEST_CASE("sample: DRY makes less likely what would go on with a repetition, by its length") {
    Sampling sampling; // greedy
    sampling.v2.dry_multiplier = 0.8F;
    const Log log{1, 2, 3, 4, 1, 2, 3}; // 4 would make "1 2 3" one longer
    const auto penalty_between = [&](const Log &history, float low, float high) {
        return draw({-9, -9, -9, -9, 5, 5 - high}, sampling, 0, history) == 4 &&
               draw({-9, -9, -9, -9, 5, 5 - low}, sampling, 0, history) == 5;
    };
    CHECK(penalty_between(log, 1.39F, 1.41F)); // 0.8 * 1.75^1
    sampling.v2.dry_allowed_length = 3;
    CHECK(penalty_between(log, 0.79F, 0.81F));
    sampling.v2.dry_allowed_length = 4;
    CHECK(draw({0, 0, 0, 0, 5, 4.9F}, sampling, 0, log) == 4); // too short
    sampling.v2.dry_allowed_length = 1;
    sampling.v2.dry_base = 3;
    CHECK(penalty_between(log, 7.19F, 7.21F)); // 0.8 * 3^2
    sampling.v2 = {};
    sampling.v2.dry_multiplier = 0.8F;
    sampling.v2.dry_range = 6; // "2 3"
    CHECK(penalty_between(log, 0.79F, 0.81F));
    sampling.v2.dry_range = 3;
    CHECK(draw({0, 0, 0, 0, 5, 4.9F}, sampling, 0, log) == 4);
    sampling.v2.dry_range = 0;
    // The longest of several; "2 3 4" is there after two tokens and after three.
    CHECK(penalty_between({2, 3, 4, 1, 2, 3, 4, 5, 1, 2, 3}, 1.39F, 1.41F));
    CHECK(penalty_between({1, 2, 3, 4, 2, 3, 4, 5, 1, 2, 3}, 1.39F, 1.41F));
    // Overlapping itself: "4 4 4" of "4 4 4 4".
    CHECK(penalty_between({4, 4, 4, 4}, 1.39F, 1.41F));
    CHECK(draw({0, 0, 0, 0, 5, 4.9F}, sampling, 0, {}) == 4);
    CHECK(draw({0, 0, 0, 0, 5, 4.9F}, sampling, 0, {4}) == 4);
}

TEST_CASE("sample: DRY: no match goes over a breaker, and a breaker loses nothing") {
    Sampling sampling;
    sampling.v2.dry_multiplier = 0.8F;
    const Log log{1, 2, 3, 4, 1, 2, 3};
    const auto best = [&](float other) { return draw({0, 0, 0, 0, 5, other}, sampling, 0, log); };
    sampling.v2.dry_breakers = {1};
    CHECK(best(4.21F) == 5); // "2 3": 0.8
    CHECK(best(4.19F) == 4);
    for (const uint32_t breaker : {2U, 3U, 4U}) {
        sampling.v2.dry_breakers = {breaker};
        CHECK(best(4.99F) == 4);
    }
    sampling.v2.dry_allowed_length = 1;
    sampling.v2.dry_breakers = {0, 2, 9};
    CHECK(best(4.21F) == 5); // "3"
    sampling.v2.dry_breakers = {3};
    CHECK(best(4.99F) == 4);
}

TEST_CASE("sample: DRY stays finite, comes after the penalties and before biases") {
    Sampling sampling;
    const Log log{1, 2, 3, 4, 1, 2, 3};
    for (const float multiplier : {FLT_MIN, 1.0F, FLT_MAX}) {
        sampling.v2.dry_multiplier = multiplier;
        sampling.v2.dry_base = FLT_MAX;
        sampling.v2.dry_allowed_length = 1;
        CHECK(draw({0, 0, 0, 0, 5, -FLT_MAX}, sampling, 0, log) == 0);
        CHECK(draw({-FLT_MAX, -FLT_MAX, -FLT_MAX, -FLT_MAX, FLT_MAX, 3}, sampling, 0, log) == 5);
    }
    sampling.v2 = {};
    sampling.v2.dry_multiplier = 1;
    sampling.v2.dry_allowed_length = 3;
    sampling.repetition_penalty = 2;
    // 6 / 2 - 1 + 1; subtracting first would give 2.5 + 1, adding first (6 + 1) / 2 - 1.
    sampling.bias = {{4, 1.0F}};
    CHECK(draw({0, 0, 0, 0, 6, 2.9F}, sampling, 0, log) == 4);
    CHECK(draw({0, 0, 0, 0, 6, 3.1F}, sampling, 0, log) == 5);
}

TEST_CASE("sample: min_keep: top_p and min_p leave so many") {
    Sampling sampling = warm();
    sampling.v2.min_keep = 3;
    sampling.top_p = 0.25F;
    CHECK(support({3, 3, 3, 3}, sampling) == TokenSet{0, 1, 2});
    CHECK(support({3, 3}, sampling) == TokenSet{0, 1});
    sampling.top_p = 0.9F; // reaches further than min_keep
    CHECK(support({3, 3, 3, 3}, sampling) == TokenSet{0, 1, 2, 3});
    sampling.top_p = 1;
    sampling.min_p = 1;
    CHECK(support({1, 2, 1.5F, 1.7F}, sampling) == TokenSet{1, 2, 3});
    sampling.top_k = 2; // is what it says
    CHECK(support({1, 2, 1.5F, 1.7F}, sampling) == TokenSet{1, 3});
}

TEST_CASE("sample: what belongs to a step that is off changes no draw") {
    const std::vector<float> logits = of({0.4, 0.3, 0.2, 0.1});
    const Sampling plain = warm();
    Sampling off = plain;
    off.v2.xtc_threshold = 0.01F;
    off.v2.dry_base = 3;
    off.v2.dry_allowed_length = 1;
    off.v2.dry_range = 3;
    off.v2.dry_breakers = {1, 2};
    for (uint64_t position = 0; position < 200; ++position) {
        const Log log{1, 2, 3, 1, 2};
        CHECK(draw(logits, off, position, log) == draw(logits, plain, position, log));
    }
}

TEST_CASE("sample: as much history is asked for as the settings look at") {
    const kernels::FloatEnvironment environment;
    Sampling sampling;
    CHECK(history_length(sampling, 100) == 0);
    sampling.v2.dry_multiplier = 1;
    CHECK(history_length(sampling, 100) == 100);
    sampling.v2.dry_range = 7;
    CHECK(history_length(sampling, 100) == 7);
    CHECK(history_length(sampling, 5) == 5);
    sampling.presence_penalty = 1;
    CHECK(history_length(sampling, 100) == 64);
    sampling.penalty_window = 3;
    CHECK(history_length(sampling, 100) == 7);
    sampling.penalty_window = 0;
    CHECK(history_length(sampling, 100) == 100);
    // More than that changes nothing: each step takes its own part.
    sampling.penalty_window = 2;
    sampling.v2.dry_range = 0;
    CHECK(draw({1, 1.5F, 1.4F, 1.2F}, sampling, 0, {0, 1, 0, 2, 2}) == 1);
}

TEST_CASE("sample: settings of version 2 out of range are refused by name") {
    const auto refusal = [](const std::function<void(SamplingV2 &)> &change) {
        Sampling sampling;
        change(sampling.v2);
        try {
            check_sampling(sampling, 100);
        } catch (const Error &error) {
            CHECK(error.status() == Status::invalid_argument);
            return std::string(error.what());
        }
        return std::string("accepted");
    };
    struct Field {
        const char *name;
        float SamplingV2::*value;
        float least, most;
    };
    for (const Field &field : {Field{"typical_p", &SamplingV2::typical_p, FLT_MIN, 1},
                               Field{"top_n_sigma", &SamplingV2::top_n_sigma, 0, FLT_MAX},
                               Field{"xtc_probability", &SamplingV2::xtc_probability, 0, 1},
                               Field{"xtc_threshold", &SamplingV2::xtc_threshold, FLT_MIN, 0.5F},
                               Field{"dry_multiplier", &SamplingV2::dry_multiplier, 0, FLT_MAX},
                               Field{"dry_base", &SamplingV2::dry_base, 1, FLT_MAX}}) {
        CAPTURE(field.name);
        const float infinity = std::numeric_limits<float>::infinity();
        for (const float bad : {std::nextafter(field.least, -infinity), NAN, -infinity, infinity,
                                std::nextafter(field.most, infinity)}) {
            CHECK(refusal([&](SamplingV2 &v2) { v2.*field.value = bad; }).find(field.name) !=
                  std::string::npos);
        }
        for (const float good : {field.least, field.most}) {
            CHECK(refusal([&](SamplingV2 &v2) { v2.*field.value = good; }) == "accepted");
        }
    }
    CHECK(refusal([](SamplingV2 &v2) { v2.dry_allowed_length = 0; }).find("dry_allowed_length") !=
          std::string::npos);
    CHECK(refusal([](SamplingV2 &v2) { v2.min_keep = 0; }).find("min_keep") != std::string::npos);
    CHECK(refusal([](SamplingV2 &v2) { v2.dry_breakers = {3, 99}; }) == "accepted");
    for (const Log &bad : {Log{100}, Log{3, 3}, Log{4, 3}}) {
        CHECK(refusal([&](SamplingV2 &v2) { v2.dry_breakers = bad; }).find("dry_breakers") !=
              std::string::npos);
    }
}
