// Encodes blocks of 256 whose parts have integer scales of their own (Q2_K to Q6_K). Each
// part's scale, and its minimum where there is one, is the weighted least-squares solution for the
// integers of a trial scale. The trials are near the scale that spans the part's values, and the
// best one is used. Then the block's scale is fixed, and each part's integers are chosen again
// under it. Sums use four lanes in a fixed order, so that every machine finds the same result.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/model/gguf/blocks.h"
#include "runtime/model/gguf/fit.h"

namespace stasis {

namespace {

constexpr size_t kSuperBlock = 256;

struct Line {
    float scale = 0, minimum = 0; // values are scale * n - minimum
};

// Sums over a part that determine the best line for its integers.
struct LineSums {
    float w = 0, n = 0, nn = 0, x = 0, xn = 0, xx = 0;

    Line solve() const {
        const float determinant = w * nn - n * n;
        if (determinant > 0) {
            const float scale = (w * xn - x * n) / determinant;
            const float minimum = (n * xn - nn * x) / determinant;
            if (minimum >= 0) {
                return {scale, minimum};
            }
        }
        return {nn > 0 ? xn / nn : 0.0F, 0}; // a minimum is not negative
    }
    float error(const Line &line) const {
        const float s = line.scale, m = line.minimum;
        return ((xx - 2 * s * xn) + (s * s * nn + m * m * w)) + 2 * m * (x - s * n);
    }
};

// Returns the best of several least-squares lines for a part.
template <size_t Count> Line fit_line(const Part<Count> &part, float levels) {
    constexpr int kTrials = 8;
    const float least = std::min(part.least, 0.0F), range = part.most - least;
    if (!(range > 0)) {
        return {0, -least};
    }

    // The sums that do not depend on the trial.
    constexpr size_t kFours = Count / kLanes;
    Lanes above[kFours], wx[kFours];
    Lanes w{}, x{}, xx{};
    for (size_t i = 0; i < kFours; ++i) {
        above[i] = part.x[i] - least;
        wx[i] = part.w[i] * part.x[i];
        w += part.w[i];
        x += wx[i];
        xx += wx[i] * part.x[i];
    }
    LineSums sums;
    sums.w = sum(w);
    sums.x = sum(x);
    sums.xx = sum(xx);

    // Each trial has its own integers, and so its own line.
    Line best;
    float best_error = HUGE_VALF;
    for (int trial = 0; trial <= kTrials; ++trial) {
        const float inverse = (levels - 0.8F + 0.22F * static_cast<float>(trial)) / range;
        Lanes n{}, nn{}, xn{};
        for (size_t i = 0; i < kFours; ++i) {
            const Lanes q = at_most(nearest(above[i] * inverse), levels);
            const Lanes wq = part.w[i] * q;
            n += wq;
            nn += wq * q;
            xn += wx[i] * q;
        }
        sums.n = sum(n);
        sums.nn = sum(nn);
        sums.xn = sum(xn);
        const Line line = sums.solve();
        const float error = sums.error(line);
        if (error < best_error) {
            best = line;
            best_error = error;
        }
    }
    return best;
}

// Returns the weighted squared error of a part under a line, with the best integers for it.
template <size_t Count> float error_of(const Part<Count> &part, const Line &line, float levels) {
    Lanes error{};
    const float inverse = line.scale > 0 ? 1 / line.scale : 0.0F;
    for (size_t i = 0; i < Count / kLanes; ++i) {
        const Lanes q = at_most(at_least(nearest((part.x[i] + line.minimum) * inverse), 0), levels);
        const Lanes off = (line.scale * q - line.minimum) - part.x[i];
        error += part.w[i] * (off * off);
    }
    return sum(error);
}

// Packs scales and minima of six bits into twelve bytes.
void put_scales(const uint8_t *scale, const uint8_t *minimum, uint8_t *out) {
    for (size_t j = 0; j < 4; ++j) {
        out[j] = static_cast<uint8_t>(scale[j] | scale[j + 4] >> 4 << 6);
        out[j + 4] = static_cast<uint8_t>(minimum[j] | minimum[j + 4] >> 4 << 6);
        out[j + 8] = static_cast<uint8_t>((scale[j + 4] & 15) | (minimum[j + 4] & 15) << 4);
    }
}

// Returns value / unit as an integer up to `most`.
int units(float value, float unit, float most) {
    return unit > 0 ? static_cast<int>(std::clamp(nearest(value / unit), 0.0F, most)) : 0;
}

// The stored integers of a block with minima: of its parts, and of its values.
struct Stored {
    uint8_t scale[16], minimum[16];
    uint8_t n[kSuperBlock];
};

// Chooses the stored integers, up to `most`, of a line's scale and minimum: the nearest ones, or
// neighbours with a smaller error under the block's units.
template <size_t Count>
void choose(const Part<Count> &part, const Line &line, const Line &unit, float levels, int most,
            uint8_t &scale, uint8_t &minimum) {
    const int nearest_scale = units(line.scale, unit.scale, static_cast<float>(most));
    const int nearest_minimum = units(line.minimum, unit.minimum, static_cast<float>(most));
    float best = HUGE_VALF;
    for (int i = 0; i < 9; ++i) {
        const int s = std::clamp(nearest_scale + i % 3 - 1, 0, most);
        const int m = std::clamp(nearest_minimum + i / 3 - 1, 0, most);
        const Line tried{unit.scale * static_cast<float>(s), unit.minimum * static_cast<float>(m)};
        const float error = error_of(part, tried, levels);
        if (error < best) {
            best = error;
            scale = static_cast<uint8_t>(s);
            minimum = static_cast<uint8_t>(m);
        }
    }
}

// The common part of Q2_K, Q4_K and Q5_K: writes the block's scales to `out`, and returns integers
// of parts, up to `most`, and of values, up to `levels`.
template <size_t Count>
Stored fit_with_minima(const float *values, float levels, int most, uint8_t *out) {
    constexpr size_t kParts = kSuperBlock / Count;
    Line lines[kParts];
    Line largest;
    for (size_t j = 0; j < kParts; ++j) {
        lines[j] = fit_line(Part<Count>(values + Count * j), levels);
        largest.scale = std::max(largest.scale, lines[j].scale);
        largest.minimum = std::max(largest.minimum, lines[j].minimum);
    }
    // The block's units hold the largest scale and minimum in their bits.
    const auto steps = static_cast<float>(most);
    const Line unit{stored(largest.scale / steps, out), stored(largest.minimum / steps, out + 2)};
    Stored result{};
    for (size_t j = 0; j < kParts; ++j) {
        uint8_t &scale = result.scale[j], &minimum = result.minimum[j];
        choose(Part<Count>(values + Count * j), lines[j], unit, levels, most, scale, minimum);
        const float step = unit.scale * static_cast<float>(scale);
        const float offset = unit.minimum * static_cast<float>(minimum);
        const float inverse = step > 0 ? 1 / step : 0.0F;
        for (size_t i = Count * j; i < Count * (j + 1); ++i) {
            const float q = nearest((values[i] + offset) * inverse);
            result.n[i] = static_cast<uint8_t>(std::clamp(q, 0.0F, levels));
        }
    }
    return result;
}

// Packs low four bits: of each 64 integers, the second half goes above the first.
void put_nibbles(const uint8_t *n, uint8_t *out) {
    for (size_t i = 0; i < kSuperBlock / 2; ++i) {
        const size_t low = i / 32 * 64 + i % 32;
        out[i] = static_cast<uint8_t>((n[low] & 15) | (n[low + 32] & 15) << 4);
    }
}

// Returns the scale for integers from `least` to -least - 1. The extreme value may have either
// sign, as the scale may.
float fit_scale(const Part<16> &part, float least) {
    constexpr int kTrials = 9; // to either side
    const float extreme = part.most > -part.least ? part.most : part.least;
    if (extreme == 0) {
        return 0;
    }
    float best = 0, best_gain = -1;
    for (int trial = -kTrials; trial <= kTrials; ++trial) {
        const float inverse = (least + 0.1F * static_cast<float>(trial)) / extreme;
        Lanes nn{}, xn{};
        for (size_t i = 0; i < 16 / kLanes; ++i) {
            const Lanes q = at_least(at_most(nearest(part.x[i] * inverse), -least - 1), least);
            const Lanes wq = part.w[i] * q;
            nn += wq * q;
            xn += wq * part.x[i];
        }
        const float squares = sum(nn), product = sum(xn);
        // Least squares leaves an error of the sum of w x^2 less this gain.
        const float gain = squares > 0 ? product * product / squares : 0.0F;
        if (gain > best_gain) {
            best_gain = gain;
            best = squares > 0 ? product / squares : 0.0F;
        }
    }
    return best;
}

// Packs 128 bytes of low four bits, then 64 of upper two: see NUMERICS.md, C8.
void put_six_bits(const uint8_t *n, uint8_t *out) {
    for (size_t half = 0; half < 2; ++half) {
        for (size_t l = 0; l < 32; ++l) {
            const uint8_t *of = n + 128 * half + l;
            uint8_t *low = out + 64 * half + l;
            low[0] = static_cast<uint8_t>((of[0] & 15) | (of[64] & 15) << 4);
            low[32] = static_cast<uint8_t>((of[32] & 15) | (of[96] & 15) << 4);
            out[128 + 32 * half + l] = static_cast<uint8_t>(of[0] >> 4 | of[32] >> 4 << 2 |
                                                            of[64] >> 4 << 4 | of[96] >> 4 << 6);
        }
    }
}

// Packs the low two bits: of each half, those of its four runs of 32 side by side.
void put_two_bits(const uint8_t *n, uint8_t *out) {
    for (size_t i = 0; i < kSuperBlock / 4; ++i) {
        const uint8_t *of = n + i / 32 * 128 + i % 32;
        out[i] = static_cast<uint8_t>((of[0] & 3) | (of[32] & 3) << 2 | (of[64] & 3) << 4 |
                                      (of[96] & 3) << 6);
    }
}

// The common part of Q3_K and Q6_K: writes d to `out`; the integers of the parts' scales from
// `least_scale` to -least_scale - 1, those of the values from `least` on, as distances from it.
void fit_scales(const float *values, float least, float least_scale, uint8_t *out, int8_t *scale,
                uint8_t *n) {
    // Each part's scale, then the block's, which holds the largest.
    float scales[16];
    float extreme = 0;
    for (size_t j = 0; j < 16; ++j) {
        scales[j] = fit_scale(Part<16>(values + 16 * j), least);
        extreme = std::fabs(scales[j]) > std::fabs(extreme) ? scales[j] : extreme;
    }
    const float d = stored(extreme / least_scale, out);
    for (size_t j = 0; j < 16; ++j) {
        const float sc =
            d != 0 ? std::clamp(nearest(scales[j] / d), least_scale, -least_scale - 1) : 0.0F;
        scale[j] = static_cast<int8_t>(sc);
        const float step = d * sc;
        for (size_t i = 16 * j; i < 16 * (j + 1); ++i) {
            const float q = step != 0 ? nearest(values[i] / step) : 0.0F;
            n[i] = static_cast<uint8_t>(std::clamp(q, least, -least - 1) - least);
        }
    }
}

} // namespace

void encode_q2_k(const float *values, uint8_t *out) {
    const Stored block = fit_with_minima<16>(values, 3, 15, out + 80);
    for (size_t j = 0; j < 16; ++j) {
        out[j] = static_cast<uint8_t>(block.scale[j] | block.minimum[j] << 4);
    }
    put_two_bits(block.n, out + 16);
}

void encode_q3_k(const float *values, uint8_t *out) {
    int8_t scale[16];
    uint8_t n[kSuperBlock];
    fit_scales(values, -4, -32, out + 108, scale, n);
    put_two_bits(n, out + 32);
    std::fill_n(out, 32, uint8_t{0});
    for (size_t i = 0; i < kSuperBlock; ++i) {
        out[i % 32] = static_cast<uint8_t>(out[i % 32] | n[i] >> 2 << i / 32);
    }
    // Of each six bits the low four, 8 to 15 above 0 to 7, then the upper two.
    uint8_t *low = out + 96, *high = out + 104;
    std::fill_n(low, 12, uint8_t{0});
    for (size_t j = 0; j < 16; ++j) {
        const int bits = scale[j] + 32;
        low[j % 8] = static_cast<uint8_t>(low[j % 8] | (bits & 15) << j / 8 * 4);
        high[j % 4] = static_cast<uint8_t>(high[j % 4] | bits >> 4 << j / 4 * 2);
    }
}

void encode_q4_k(const float *values, uint8_t *out) {
    const Stored block = fit_with_minima<32>(values, 15, 63, out);
    put_scales(block.scale, block.minimum, out + 4);
    put_nibbles(block.n, out + 16);
}

void encode_q5_k(const float *values, uint8_t *out) {
    const Stored block = fit_with_minima<32>(values, 31, 63, out);
    put_scales(block.scale, block.minimum, out + 4);
    uint8_t *fifth = out + 16;
    std::fill_n(fifth, 32, uint8_t{0});
    for (size_t i = 0; i < kSuperBlock; ++i) {
        fifth[i % 32] = static_cast<uint8_t>(fifth[i % 32] | block.n[i] >> 4 << i / 32);
    }
    put_nibbles(block.n, out + 48);
}

void encode_q6_k(const float *values, uint8_t *out) {
    int8_t scale[16];
    uint8_t n[kSuperBlock];
    fit_scales(values, -32, -128, out + 208, scale, n);
    std::memcpy(out + 192, scale, sizeof scale);
    put_six_bits(n, out);
}

} // namespace stasis
