// Sampling (C7): each step on cases worked out by hand. sampling_combined_test.cpp takes all steps
// together, sampling_draws_test.cpp holds draws that every machine must reproduce.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <set>
#include <string>

#include "format/state/error.h"
#include "runtime/kernels/environment.h"
#include "runtime/kernels/math.h"
#include "runtime/sampling/likelihood.h"
#include "runtime/sampling/philox.h"
#include "runtime/sampling/sampling.h"
#include "tests/runtime/sampling_draws.h"

using namespace stasis;
using namespace stasis::test;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

__extension__ using Uint128 = unsigned __int128;

} // namespace

TEST_CASE("philox4x32: philox 4x32-10 gives the published known answers") {
    // Random123's kat_vectors.
    using Block = std::array<uint32_t, 4>;
    CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) ==
          Block{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8});
    constexpr uint32_t ones = UINT32_MAX;
    CHECK(philox4x32({ones, ones, ones, ones}, {ones, ones}) ==
          Block{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD});
    CHECK(philox4x32({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, {0xA4093822, 0x299F31D0}) ==
          Block{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1});
}

TEST_CASE(
    "random_bits: random bits: key is the seed, counter the position, both with their high words") {
    CHECK(random_bits(0, 0) == 0xE169C58D6627E8D5U);
    const auto block = philox4x32({0x9ABCDEF0, 0x12345678, 0, 0}, {0x76543210, 0xFEDCBA98});
    CHECK(random_bits(0xFEDCBA9876543210U, 0x123456789ABCDEF0U) ==
          (uint64_t{block[1]} << 32 | block[0]));
}

TEST_CASE("sample: greedy takes the highest logit, of equal ones the lowest token") {
    CHECK(draw({1, 3, 2, 3}, {}) == 1);
    CHECK(draw({-0.0F, 0.0F}, {}) == 0);
    CHECK(draw({0.0F, -0.0F}, {}) == 0);
    CHECK(draw({-FLT_MAX, -FLT_MAX}, {}) == 0);
}

TEST_CASE("sample: repetition penalty divides positive logits and multiplies negative ones") {
    Sampling sampling;
    sampling.repetition_penalty = 2.0F;
    CHECK(draw({4, 2.5F, 0}, sampling, 0, {0}) == 1);
    CHECK(draw({4, 1.5F, 0}, sampling, 0, {0}) == 0);
    CHECK(draw({4, 2.5F, 0}, sampling, 0, {0, 1}) == 0);
    CHECK(draw({-1, -1.5F}, sampling, 0, {0}) == 1);
    CHECK(draw({-1, -2.5F}, sampling, 0, {0}) == 0);
    CHECK(draw({4, 1.5F, 0}, sampling, 0, {0, 0, 0}) == 0); // once, however often it was seen
    sampling.repetition_penalty = 0.5F;
    CHECK(draw({2, 3}, sampling, 0, {0}) == 0);
}

TEST_CASE("sample: frequency penalty counts, presence penalty does not") {
    Sampling sampling;
    sampling.frequency_penalty = 1.0F;
    CHECK(draw({5, 2.5F}, sampling, 0, {0, 0}) == 0);
    CHECK(draw({5, 2.5F}, sampling, 0, {0, 0, 0}) == 1);
    sampling.frequency_penalty = 0.0F;
    sampling.presence_penalty = 2.0F;
    CHECK(draw({5, 2.5F}, sampling, 0, {0, 0, 0}) == 0);
    sampling.presence_penalty = 3.0F;
    CHECK(draw({5, 2.5F}, sampling, 0, {0}) == 1);
    sampling.presence_penalty = -3.0F;
    CHECK(draw({5, 2.5F}, sampling, 0, {1}) == 1);
}

TEST_CASE("sample: penalties follow one another: repetition, frequency, presence") {
    Sampling sampling;
    sampling.repetition_penalty = 2.0F;
    sampling.frequency_penalty = 1.0F;
    sampling.presence_penalty = 0.5F;
    // 8 / 2 - 2 * 1 - 0.5 = 1.5; subtracting first would give 2.75.
    CHECK(draw({8, 1.4F}, sampling, 0, {0, 0}) == 0);
    CHECK(draw({8, 1.6F}, sampling, 0, {0, 0}) == 1);
}

TEST_CASE(
    "sample: a bias is added after the penalties; -infinity removes the token before everything") {
    Sampling sampling;
    sampling.bias = {{1, 2.0F}};
    CHECK(draw({3, 1.5F, 0}, sampling) == 1);
    sampling.repetition_penalty = 2.0F;
    CHECK(draw({3, 1.5F, 0}, sampling, 0, {1}) == 0); // 0.75 + 2; (1.5 + 2) / 2 is less too
    sampling.bias = {{1, 2.5F}};
    CHECK(draw({3, 1.5F, 0}, sampling, 0, {1}) == 1); // 0.75 + 2.5; (1.5 + 2.5) / 2 would lose

    sampling.bias = {{0, -kInfinity}, {1, -kInfinity}, {3, -kInfinity}};
    for (const float temperature : {0.0F, 1e-30F, 1.0F, 1e30F}) {
        sampling.temperature = temperature;
        CHECK(draw({9, 9, -FLT_MAX, 9}, sampling, 0, {0, 1, 2}) == 2);
    }
    // The best of what is left sets the scale of the weights, not the token removed.
    Sampling relative;
    relative.temperature = 1.0F;
    relative.min_p = 0.3F;
    relative.bias = {{0, -kInfinity}};
    CHECK(support({50, 1, 0, -1}, relative) == TokenSet{1, 2});
}

TEST_CASE("sample: a row of which biases removed everything is an error") {
    Sampling sampling;
    sampling.bias = {{0, -kInfinity}, {1, -kInfinity}};
    for (const float temperature : {0.0F, 1.0F}) {
        sampling.temperature = temperature;
        try {
            draw({1, 2}, sampling);
            FAIL("no error");
        } catch (const Error &error) {
            CHECK(error.status() == Status::invalid_argument);
            CHECK(std::string(error.what()).find("removed all 2 tokens") != std::string::npos);
        }
    }
}

TEST_CASE(
    "sample: temperature: tiny leaves the best, huge leaves a uniform choice, none overflows") {
    Sampling sampling;
    sampling.temperature = FLT_MIN;
    CHECK(support({5, 9, -5, 4}, sampling) == TokenSet{0, 1, 3}); // all three beyond range: a tie
    CHECK(support({1, 2, 1.99F}, sampling) == TokenSet{1});
    sampling.temperature = 1e-4F;
    CHECK(support({1, 2, 1.99F, 2}, sampling) == TokenSet{1, 3});
    sampling.temperature = FLT_MAX;
    const std::vector<float> logits{1, -2, 3, 0.25F, 2, -3, 0};
    // 3 / FLT_MAX is denormal, so zero: equal weights, drawn in the order of tokens.
    for (uint64_t position = 0; position < 100; ++position) {
        const Uint128 product = Uint128{random_bits(0, position)} * 7;
        CHECK(draw(logits, sampling, position) == static_cast<uint32_t>(product >> 64));
    }
    sampling = {};
    sampling.temperature = 1.0F;
    sampling.frequency_penalty = -FLT_MAX;
    CHECK(draw({FLT_MAX, 1, FLT_MAX}, sampling, 0, {1, 1, 1}) < 3);
    sampling.presence_penalty = FLT_MAX;
    CHECK(draw({FLT_MAX, 1, 5}, sampling, 0, {1, 1, 2}) == 0);
}

TEST_CASE("sample: top_k keeps the first k, of equal logits the lower tokens") {
    Sampling sampling;
    sampling.temperature = 1.0F;
    sampling.top_k = 2;
    CHECK(support({1, 2, 2, 2}, sampling) == TokenSet{1, 2});
    sampling.top_k = 1;
    CHECK(support({1, 2, 2, 2}, sampling) == TokenSet{1});
    for (const uint32_t all : {0U, 4U, 5U, UINT32_MAX}) {
        sampling.top_k = all;
        CHECK(support({1, 2, 2, 2}, sampling) == TokenSet{0, 1, 2, 3});
    }
}

TEST_CASE("sample: min_p keeps what reaches its share of the best weight, exactly") {
    Sampling sampling;
    sampling.temperature = 1.0F;
    sampling.min_p = 1.0F;
    CHECK(support({1, 2, 1.9999F, 2}, sampling) == TokenSet{1, 3});
    const kernels::FloatEnvironment environment;
    sampling.min_p = kernels::exp_f32(-1.0F);
    CHECK(support({1, 2, 0.5F}, sampling) == TokenSet{0, 1});
    sampling.min_p = std::nextafter(sampling.min_p, 1.0F);
    CHECK(support({1, 2, 0.5F}, sampling) == TokenSet{1});
}

TEST_CASE("sample: top_p keeps the shortest prefix that reaches its share, exactly") {
    Sampling sampling;
    sampling.temperature = 1.0F;
    const std::vector<float> equal{3, 3, 3, 3};
    const auto tokens_of = [&](float top_p) {
        sampling.top_p = top_p;
        return support(equal, sampling);
    };
    CHECK(tokens_of(0.5F) == TokenSet{0, 1});
    CHECK(tokens_of(std::nextafter(0.5F, 1.0F)) == TokenSet{0, 1, 2});
    CHECK(tokens_of(std::nextafter(0.5F, 0.0F)) == TokenSet{0, 1});
    CHECK(tokens_of(0.25F) == TokenSet{0});
    CHECK(tokens_of(0.75F) == TokenSet{0, 1, 2});
    CHECK(tokens_of(1e-30F) == TokenSet{0});
    CHECK(tokens_of(1.0F) == TokenSet{0, 1, 2, 3});
    // By rank, not by token: the best two hold 1 / (1 + e^-2) = 0.881 of the weight.
    sampling.top_p = 0.85F;
    CHECK(support({1, 3, 1, 3}, sampling) == TokenSet{1, 3});
    sampling.top_p = 0.9F;
    CHECK(support({1, 3, 1, 3}, sampling) == TokenSet{0, 1, 3});
}

TEST_CASE("sample: top_p rounds its threshold up to the next whole weight") {
    const kernels::FloatEnvironment environment;
    // Weights: 2^40, `second`, and as many ones as bring top_p * total to 2^40 and just beyond it.
    const auto second = static_cast<uint64_t>(kernels::exp_f32(-0.5F) * 0x1p40F);
    const uint64_t both = (uint64_t{1} << 40) + second;
    Sampling sampling;
    sampling.temperature = 1.0F;
    sampling.top_p = 0x1p40F / static_cast<float>(both);
    while (static_cast<double>(sampling.top_p) * static_cast<double>(both) > 0x1p40) {
        sampling.top_p = std::nextafter(sampling.top_p, 0.0F);
    }
    const auto fraction = static_cast<uint64_t>(sampling.top_p * 0x1p32F);
    uint64_t ones = 0;
    while (Uint128{both + ones + 1} * fraction <= Uint128{1} << 72) {
        ++ones;
    }
    REQUIRE(ones < 200000);
    std::vector<float> logits(2 + ones, -27.3F);
    logits[0] = 0.0F;
    logits[1] = -0.5F;
    const auto drawn = [&] {
        TokenSet tokens;
        for (uint64_t position = 0; position < 40; ++position) {
            tokens.insert(draw(logits, sampling, position));
        }
        return tokens;
    };
    CHECK(drawn() == TokenSet{0});
    logits.push_back(-27.3F);
    CHECK(drawn() == TokenSet{0, 1});
}

TEST_CASE(
    "sample: the lowest weight counts, and is drawn where the random bits are nearly all ones") {
    // Weights: 2^40, then 1 at every odd token, 0 at the even ones.
    std::vector<float> logits(100001);
    for (size_t i = 1; i < logits.size(); ++i) {
        logits[i] = i % 2 == 1 ? -27.3F : -27.9F;
    }
    Sampling sampling;
    sampling.temperature = 1.0F;
    const uint64_t total = (uint64_t{1} << 40) + 50000;
    for (const uint64_t position : {80860892U, 125383624U}) {
        const uint64_t random = random_bits(0, position);
        CHECK((random >> 37) == (UINT64_MAX >> 37));
        const auto number = static_cast<uint64_t>((Uint128{random} * total) >> 64);
        const uint64_t rank = number - (uint64_t{1} << 40); // among those of weight 1
        CHECK(draw(logits, sampling, position) == 2 * rank + 1);
    }
}

TEST_CASE("sample: a draw depends on seed and position and on nothing that happened before") {
    const kernels::FloatEnvironment environment;
    const std::vector<float> flat(1000, 1.0F), other(3000, -2.0F);
    Sampling sampling;
    sampling.temperature = 1.0F;
    SamplingScratch used;
    TokenSet by_position, by_seed;
    for (uint64_t i = 0; i < 50; ++i) {
        sampling.seed = 7;
        const uint32_t token = sample(flat, sampling, i, {}, used);
        by_position.insert(token);
        Sampling wild = sampling;
        wild.top_k = static_cast<uint32_t>(i);
        wild.presence_penalty = 1.0F;
        wild.bias = {{static_cast<uint32_t>(i), -kInfinity}};
        sample(other, wild, i, std::vector<uint32_t>{1, 2, 2, 2999}, used);
        CHECK(sample(flat, sampling, i, {}, used) == token);
        CHECK(draw(flat, sampling, i) == token);
        sampling.seed = i << 32;
        by_seed.insert(sample(flat, sampling, 0, {}, used));
    }
    CHECK(by_position.size() > 40);
    CHECK(by_seed.size() > 40);
}

TEST_CASE("sample: totals do not depend on the order of the tokens") {
    std::vector<float> logits(500);
    for (size_t i = 0; i < logits.size(); ++i) {
        logits[i] = static_cast<float>(i * 37 % 500) / 64.0F; // all different
    }
    std::vector<float> shuffled = logits;
    std::mt19937_64 generator(5);
    std::shuffle(shuffled.begin(), shuffled.end(), generator);
    Sampling sampling;
    sampling.temperature = 0.9F;
    for (const float top_p : {1.0F, 0.9F, 0.4F}) {
        sampling.top_p = top_p;
        for (uint64_t position = 0; position < 100; ++position) {
            CHECK(logits[draw(logits, sampling, position)] ==
                  shuffled[draw(shuffled, sampling, position)]);
        }
    }
}

TEST_CASE("sample: parameters out of range are refused by name") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const auto refusal = [](const std::function<void(Sampling &)> &change) {
        Sampling sampling;
        change(sampling);
        try {
            check_sampling(sampling, 100);
        } catch (const Error &error) {
            CHECK(error.status() == Status::invalid_argument);
            return std::string(error.what());
        }
        return std::string("accepted");
    };
    const std::vector<std::pair<const char *, float Sampling::*>> fields{
        {"temperature", &Sampling::temperature},
        {"top_p", &Sampling::top_p},
        {"min_p", &Sampling::min_p},
        {"repetition_penalty", &Sampling::repetition_penalty},
        {"frequency_penalty", &Sampling::frequency_penalty},
        {"presence_penalty", &Sampling::presence_penalty}};
    const auto verdict = [&](size_t field, float value) {
        return refusal([&](Sampling &s) { s.*fields[field].second = value; });
    };
    for (size_t field = 0; field < fields.size(); ++field) {
        for (const float value : {nan, kInfinity, -kInfinity}) {
            const std::string message = verdict(field, value);
            CHECK(message.find(fields[field].first) != std::string::npos);
        }
        CHECK((verdict(field, -0.5F) == "accepted") == (field >= 4));
        CHECK((verdict(field, 0.0F) == "accepted") == (field != 1 && field != 3));
        CHECK((verdict(field, 1.5F) == "accepted") == (field != 1 && field != 2));
        CHECK(verdict(field, 1.0F) == "accepted");
    }
    CHECK(verdict(0, -0.5F).find("-0.5") != std::string::npos);

    using Bias = std::vector<std::pair<uint32_t, float>>;
    const auto bias = [&](const Bias &value) {
        return refusal([&](Sampling &s) { s.bias = value; });
    };
    CHECK(bias({{0, 1.0F}, {99, -kInfinity}}) == "accepted");
    CHECK(bias({{0, 1.0F}, {100, 1.0F}}).find("bias 1 is for token 100") != std::string::npos);
    CHECK(bias({{3, 1.0F}, {3, 2.0F}}).find("each token once") != std::string::npos);
    CHECK(bias({{4, 1.0F}, {3, 2.0F}}).find("ascending") != std::string::npos);
    CHECK(bias({{3, nan}}).find("bias of token 3") != std::string::npos);
    CHECK(bias({{3, kInfinity}}).find("bias of token 3") != std::string::npos);
    check_sampling({}, (1U << 24) - 1);
    CHECK_THROWS_AS(check_sampling({}, 1U << 24), Error);
}

TEST_CASE("best: best lists by logit descending, then token ascending") {
    using Best = std::vector<std::pair<uint32_t, float>>;
    const std::vector<float> logits{1, 3, 2, 3, -4};
    CHECK(best(logits, 0) == Best{});
    CHECK(best(logits, 3) == Best{{1, 3.0F}, {3, 3.0F}, {2, 2.0F}});
    CHECK(best(logits, 99) == Best{{1, 3.0F}, {3, 3.0F}, {2, 2.0F}, {0, 1.0F}, {4, -4.0F}});
}

TEST_CASE("log_sum_exp: log_sum_exp adds in sixteen lanes and a tree") {
    const kernels::FloatEnvironment environment;
    std::mt19937_64 generator(3);
    for (const float shift : {0.0F, 500.0F}) {
        for (const size_t n : {1U, 2U, 15U, 16U, 17U, 31U, 100U, 150U, 200U}) {
            std::vector<float> logits(n);
            for (float &l : logits) {
                // Small beside the first, so that the sum's last bits reach its logarithm.
                l = shift - 3.0F - static_cast<float>(generator() % 2000) / 100.0F;
            }
            logits[n / 2] = shift;
            double lane[16] = {};
            long double expected = 0;
            for (size_t i = 0; i < n; ++i) {
                lane[i % 16] += kernels::exp_f64(static_cast<double>(logits[i]) - shift);
                expected += std::exp(static_cast<long double>(logits[i]) - shift);
            }
            const auto pair = [&](size_t j) { return lane[j] + lane[j + 8]; };
            const auto quad = [&](size_t j) { return pair(j) + pair(j + 4); };
            const double sum = (quad(0) + quad(2)) + (quad(1) + quad(3));
            const double actual = log_sum_exp(logits);
            CHECK(std::bit_cast<uint64_t>(actual) ==
                  std::bit_cast<uint64_t>(shift + kernels::log_f64(sum)));
            CHECK(std::abs(static_cast<long double>(actual) - shift - std::log(expected)) < 1e-12L);
        }
    }
    CHECK(log_sum_exp(std::vector<float>{-3.25F}) == -3.25);
}
