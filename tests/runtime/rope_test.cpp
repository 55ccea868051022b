// RoPE tables against the same formulas in long double from libm, and the boundaries of scaling.
#include "runtime/model/rope.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "format/state/digest.h"
#include "runtime/kernels/environment.h"

using stasis::Rope;
using stasis::RopeScaling;

namespace {

constexpr long double kPi = 3.14159265358979323846264338327950288L;

// The published formula of YaRN, with no concern for bits.
long double yarn_frequency(const Rope &rope, long double frequency, uint32_t head_dim, uint32_t i) {
    const auto pair_of = [&](long double turns) {
        return head_dim * std::log(rope.original_context / (turns * 2 * kPi)) /
               (2 * std::log(static_cast<long double>(rope.base)));
    };
    long double low = pair_of(rope.turns_fast), high = pair_of(rope.turns_slow);
    if (rope.whole_bounds) {
        low = std::floor(low);
        high = std::ceil(high);
    }
    low = std::max(low, 0.0L);
    high = std::min(high, head_dim - 1.0L);
    high += low == high ? 0.001L : 0.0L;
    const long double ramp = std::min(std::max((i - low) / (high - low), 0.0L), 1.0L);
    return frequency / rope.factor * ramp + frequency * (1 - ramp);
}

// The published formulas, with no concern for bits.
long double expected_frequency(const Rope &rope, uint32_t head_dim, uint32_t i) {
    const long double frequency =
        std::pow(static_cast<long double>(rope.base), -2.0L * i / head_dim);
    if (rope.scaling == RopeScaling::none) {
        return frequency;
    }
    if (rope.scaling == RopeScaling::linear) {
        return frequency / rope.factor;
    }
    if (rope.scaling == RopeScaling::yarn) {
        return yarn_frequency(rope, frequency, head_dim, i);
    }
    const long double turns = rope.original_context * frequency / (2 * kPi);
    if (turns > rope.high_frequency_factor) {
        return frequency;
    }
    if (turns < rope.low_frequency_factor) {
        return frequency / rope.factor;
    }
    const long double blend = (turns - rope.low_frequency_factor) /
                              (rope.high_frequency_factor - rope.low_frequency_factor);
    return frequency * ((1 - blend) / rope.factor + blend);
}

Rope llama3() {
    return {500000.0, RopeScaling::llama3, 8.0, 1.0, 4.0, 8192};
}

Rope yarn(double factor, uint32_t context, bool whole_bounds = true) {
    Rope rope{1000000.0, RopeScaling::yarn, factor, 1.0, 4.0, context};
    rope.whole_bounds = whole_bounds;
    return rope;
}

// Rows of the positions [begin, end): [end - begin][head_dim / 2] each.
void rope_rows(const Rope &rope, uint32_t head_dim, uint64_t begin, uint64_t end, float *cosine,
               float *sine) {
    const std::vector<double> frequencies = stasis::rope_frequencies(rope, head_dim);
    for (uint64_t position = begin; position < end; ++position) {
        const size_t row = (position - begin) * frequencies.size();
        stasis::rope_row(frequencies, rope.amplitude, position, cosine + row, sine + row);
    }
}

} // namespace

TEST_CASE("Rope: frequencies follow the published formulas to a few units in the last place") {
    const Rope ropes[] = {{},
                          {1000000.0, RopeScaling::none, 1.0, 1.0, 4.0, 0},
                          {1000000.0, RopeScaling::linear, 8.0, 1.0, 4.0, 0},
                          llama3(),
                          {500000.0, RopeScaling::llama3, 32.0, 1.0, 4.0, 64},
                          yarn(4, 32768),
                          yarn(32, 4096, false),
                          yarn(16, 32)};
    for (const Rope &rope : ropes) {
        for (const uint32_t head_dim : {2U, 6U, 64U, 128U, 256U}) {
            const std::vector<double> frequencies = stasis::rope_frequencies(rope, head_dim);
            REQUIRE(frequencies.size() == head_dim / 2);
            for (uint32_t i = 0; i < head_dim / 2; ++i) {
                const long double exact = expected_frequency(rope, head_dim, i);
                // A blend that keeps little rounds a share of what the factor has not divided.
                const long double size =
                    exact * (rope.scaling == RopeScaling::yarn ? rope.factor : 1);
                CHECK(std::fabs(frequencies[i] - exact) <= size * 0x1p-50L);
            }
        }
    }
}

TEST_CASE("Rope: rows are the cosine and sine of position times frequency, rounded to float") {
    for (const Rope &rope : {Rope{}, llama3()}) {
        const uint32_t head_dim = 64;
        for (const uint64_t begin : {uint64_t{0}, uint64_t{1000}, uint64_t{131072} - 20}) {
            std::vector<float> cosine(20 * 32), sine(20 * 32);
            rope_rows(rope, head_dim, begin, begin + 20, cosine.data(), sine.data());
            for (uint64_t row = 0; row < 20; ++row) {
                for (uint32_t i = 0; i < 32; ++i) {
                    const long double angle = (begin + row) * expected_frequency(rope, head_dim, i);
                    // Half a unit of a float below 1, and what the angle's own error may add.
                    const long double bound = 0x1p-25L + angle * 0x1p-50L;
                    CHECK(std::fabs(cosine[row * 32 + i] - std::cos(angle)) <= bound);
                    CHECK(std::fabs(sine[row * 32 + i] - std::sin(angle)) <= bound);
                }
            }
        }
    }
}

TEST_CASE("Rope: position 0 does not turn") {
    std::vector<float> cosine(32), sine(32);
    stasis::rope_row(stasis::rope_frequencies(llama3(), 64), 1.0, 0, cosine.data(), sine.data());
    CHECK(cosine == std::vector<float>(32, 1.0F));
    CHECK(sine == std::vector<float>(32, 0.0F));
}

TEST_CASE("Rope: a row is the same however the range is cut, and in the contract's environment") {
    const Rope rope = llama3();
    const std::vector<double> frequencies = stasis::rope_frequencies(rope, 48);
    std::vector<float> cosine(100 * 24), sine(100 * 24);
    rope_rows(rope, 48, 70, 170, cosine.data(), sine.data());
    const stasis::kernels::FloatEnvironment environment;
    for (uint64_t position = 70; position < 170; ++position) {
        std::vector<float> one_cosine(24), one_sine(24);
        stasis::rope_row(frequencies, rope.amplitude, position, one_cosine.data(), one_sine.data());
        const size_t row = (position - 70) * 24;
        CHECK(std::memcmp(one_cosine.data(), &cosine[row], 24 * sizeof(float)) == 0);
        CHECK(std::memcmp(one_sine.data(), &sine[row], 24 * sizeof(float)) == 0);
    }
}

TEST_CASE("Rope: llama3 keeps short waves, stretches long ones by the factor, blends between") {
    const uint32_t head_dim = 128;
    const Rope scaled = llama3();
    Rope plain = scaled;
    plain.scaling = RopeScaling::none;
    const std::vector<double> kept = stasis::rope_frequencies(plain, head_dim);
    const std::vector<double> frequencies = stasis::rope_frequencies(scaled, head_dim);
    size_t counts[3] = {};
    for (size_t i = 0; i < kept.size(); ++i) {
        const double turns = 8192.0 * kept[i] / (2.0 * static_cast<double>(kPi));
        if (turns > 4.0) {
            ++counts[0];
            CHECK(frequencies[i] == kept[i]);
        } else if (turns < 1.0) {
            ++counts[1];
            CHECK(frequencies[i] == kept[i] / 8.0);
        } else {
            ++counts[2];
            CHECK(frequencies[i] < kept[i]);
            CHECK(frequencies[i] > kept[i] / 8.0);
        }
    }
    CHECK(counts[0] > 0);
    CHECK(counts[1] > 0);
    CHECK(counts[2] > 0);
}

TEST_CASE("Rope: yarn keeps fast pairs, stretches slow ones by the factor, blends between") {
    const uint32_t head_dim = 128;
    const Rope scaled = yarn(4, 32768);
    const std::vector<double> kept =
        stasis::rope_frequencies({1000000.0, RopeScaling::none}, head_dim);
    const std::vector<double> frequencies = stasis::rope_frequencies(scaled, head_dim);
    // 128 ln(32768 / (turns * 2 pi)) / (2 ln 1e6) is 23.6 for 32 turns and 39.7 for one.
    for (size_t i = 0; i < kept.size(); ++i) {
        CHECK((frequencies[i] == kept[i]) == (i <= 23));
        CHECK((frequencies[i] == kept[i] / 4) == (i >= 40));
    }
    // Bounds that are not whole lie between the pairs.
    const std::vector<double> exact = stasis::rope_frequencies(yarn(4, 32768, false), head_dim);
    CHECK(exact[23] == kept[23]);
    CHECK(exact[24] > frequencies[24]);
    CHECK(exact[39] < frequencies[39]);
    // Bounds at one place: nothing is blended, and nothing divided by zero.
    Rope narrow = yarn(4, 32768, false);
    narrow.turns_fast = narrow.turns_slow;
    const std::vector<double> parted = stasis::rope_frequencies(narrow, head_dim);
    CHECK(parted[39] == kept[39]);
    CHECK(parted[40] == kept[40] / 4);
}

TEST_CASE("Rope: the amplitude multiplies cosines and sines before they are rounded") {
    CHECK(stasis::yarn_amplitude(1.0, 1.0) == 1.0);
    CHECK(stasis::yarn_amplitude(0.5, 1.0) == 1.0);
    CHECK(std::fabs(stasis::yarn_amplitude(8.0, 1.0) - 1.2079441541679836) < 1e-15);
    CHECK(std::fabs(stasis::yarn_amplitude(8.0, 0.5) - 1.1039720770839918) < 1e-15);
    const std::vector<double> frequencies = stasis::rope_frequencies({}, 64);
    std::vector<float> cosine(32), sine(32), plain_cosine(32), plain_sine(32);
    stasis::rope_row(frequencies, 1.25, 77, cosine.data(), sine.data());
    stasis::rope_row(frequencies, 1.0, 77, plain_cosine.data(), plain_sine.data());
    for (uint32_t i = 0; i < 32; ++i) {
        CHECK(std::fabs(cosine[i] - plain_cosine[i] * 1.25F) <= 0x1p-23F);
        CHECK(std::fabs(sine[i] - plain_sine[i] * 1.25F) <= 0x1p-23F);
    }
}

// Base 1 gives every pair the frequency 1 and so the wavelength 2 pi; the context is moved past it.
TEST_CASE("Rope: llama3 at its two boundaries") {
    const auto frequency = [](double low, double high) {
        return stasis::rope_frequencies({1.0, RopeScaling::llama3, 8.0, low, high, 100}, 2)[0];
    };
    const double turns = 100.0 / 0x1.921fb54442d18p+2; // in the original context
    CHECK(frequency(1.0, std::nextafter(turns, 0.0) * 0.999999) == 1.0);
    CHECK(frequency(turns * 1.000001, 20.0) == 0.125);
    // At the boundaries themselves the blend meets both sides.
    CHECK(std::fabs(frequency(1.0, turns) - 1.0) < 1e-14);
    CHECK(std::fabs(frequency(turns, 20.0) - 0.125) < 1e-14);
    CHECK(std::fabs(frequency(turns - 1.0, turns + 1.0) - 0.5625) < 1e-14);
}

TEST_CASE("Rope: the tables give the recorded bits on every machine") {
    const Rope ropes[] = {{}, {1000000.0, RopeScaling::linear, 8.0, 1.0, 4.0, 0}, llama3()};
    stasis::Sha256 digest;
    for (const Rope &rope : ropes) {
        for (const uint64_t begin : {uint64_t{0}, uint64_t{32700}}) {
            std::vector<float> cosine(100 * 64), sine(100 * 64);
            rope_rows(rope, 128, begin, begin + 100, cosine.data(), sine.data());
            digest.bytes(cosine.data(), cosine.size() * sizeof(float));
            digest.bytes(sine.data(), sine.size() * sizeof(float));
        }
    }
    CHECK(stasis::to_hex(digest.finish()) ==
          "88b713557a2a477b9a7530586e75532da181c8b1e30595bf72850630e850bf9c");
}
