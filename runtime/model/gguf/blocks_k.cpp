// Encodes blocks of 256 whose parts have integer scales of their own (Q4_K, Q5_K, Q6_K). Each
// part's scale, and its minimum where there is one, is the weighted least-squares solution for the
// integers of a trial scale. The trials are near the scale that spans the part's values, and the
// best one is used. Then the block's scale is fixed, and each part's integers are chosen again
// under it. Sums use four lanes in a fixed order, so that every machine finds the same result.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "runtime/model/f16.h"
#include "runtime/model/gguf/blocks.h"

namespace stasis {

namespace {

constexpr size_t kSuperBlock = 256, kLanes = 4;
using Lanes = float __attribute__((vector_size(16)));

float sum(Lanes lanes) {
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

// Rounds to nearest even, for magnitudes below 2^22: beyond 1.5 * 2^23 an f32 has no fraction.
float nearest(float value) {
    return (value + 0x1.8p23F) - 0x1.8p23F;
}
Lanes nearest(Lanes value) {
    return (value + 0x1.8p23F) - 0x1.8p23F;
}
Lanes at_most(Lanes value, float most) {
    return value < most ? value : Lanes{} + most;
}
Lanes at_least(Lanes value, float least) {
    return value > least ? value : Lanes{} + least;
}

// One part's values and their weights.
template <size_t Count> struct Part {
    static constexpr size_t kCount = Count;
    Lanes x[Count / kLanes], w[Count / kLanes];
    float least, most;

    explicit Part(const float *values) {
        std::memcpy(x, values, sizeof x);
        const auto ends = std::minmax_element(values, values + Count);
        least = *ends.first;
        most = *ends.second;
        // A value's weight is its magnitude plus the root mean square of the part.
        Lanes squares{};
        for (const Lanes &four : x) {
            squares += four * four;
        }
        const float mean = std::sqrt(sum(squares) / static_cast<float>(Count));
        for (size_t i = 0; i < Count / kLanes; ++i) {
            w[i] = mean + (x[i] < 0.0F ? -x[i] : x[i]);
        }
    }
};

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
Line fit_line(const Part<32> &part, float levels) {
    constexpr int kTrials = 8;
    const float least = std::min(part.least, 0.0F), range = part.most - least;
    if (!(range > 0)) {
        return {0, -least};
    }

    // The sums that do not depend on the trial.
    constexpr size_t kFours = 32 / kLanes;
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
float error_of(const Part<32> &part, const Line &line, float levels) {
    Lanes error{};
    const float inverse = line.scale > 0 ? 1 / line.scale : 0.0F;
    for (size_t i = 0; i < 32 / kLanes; ++i) {
        const Lanes q = at_most(at_least(nearest((part.x[i] + line.minimum) * inverse), 0), levels);
        const Lanes off = (line.scale * q - line.minimum) - part.x[i];
        error += part.w[i] * (off * off);
    }
    return sum(error);
}

// Stores a value as f16, and returns the stored value.
float stored(float value, uint8_t *out) {
    const uint16_t bits = f32_to_f16(value);
    std::memcpy(out, &bits, sizeof bits);
    return f16_to_f32(bits);
}

// Packs scales and minima of six bits into twelve bytes.
void put_scales(const uint8_t *scale, const uint8_t *minimum, uint8_t *out) {
    for (size_t j = 0; j < 4; ++j) {
        out[j] = static_cast<uint8_t>(scale[j] | scale[j + 4] >> 4 << 6);
        out[j + 4] = static_cast<uint8_t>(minimum[j] | minimum[j + 4] >> 4 << 6);
        out[j + 8] = static_cast<uint8_t>((scale[j + 4] & 15) | (minimum[j + 4] & 15) << 4);
    }
}

uint8_t six_bits(float value, float unit) {
    return unit > 0 ? static_cast<uint8_t>(std::clamp(nearest(value / unit), 0.0F, 63.0F)) : 0;
}

// Chooses the stored integers of a line's scale and minimum: the nearest ones, or neighbours with a
// smaller error under the block's units.
void choose(const Part<32> &part, const Line &line, const Line &unit, float levels, uint8_t &scale,
            uint8_t &minimum) {
    const int nearest_scale = six_bits(line.scale, unit.scale);
    const int nearest_minimum = six_bits(line.minimum, unit.minimum);
    float best = HUGE_VALF;
    for (int i = 0; i < 9; ++i) {
        const int s = std::clamp(nearest_scale + i % 3 - 1, 0, 63);
        const int m = std::clamp(nearest_minimum + i / 3 - 1, 0, 63);
        const Line tried{unit.scale * static_cast<float>(s), unit.minimum * static_cast<float>(m)};
        const float error = error_of(part, tried, levels);
        if (error < best) {
            best = error;
            scale = static_cast<uint8_t>(s);
            minimum = static_cast<uint8_t>(m);
        }
    }
}

// The common part of Q4_K and Q5_K: writes head and scales to `out`, integers of `levels` + 1
// values to `n`.
void fit_with_minima(const float *values, float levels, uint8_t *out, uint8_t *n) {
    Line lines[8];
    Line most;
    for (size_t j = 0; j < 8; ++j) {
        lines[j] = fit_line(Part<32>(values + 32 * j), levels);
        most.scale = std::max(most.scale, lines[j].scale);
        most.minimum = std::max(most.minimum, lines[j].minimum);
    }
    // The block's units hold the largest scale and minimum in six bits.
    const Line unit{stored(most.scale / 63, out), stored(most.minimum / 63, out + 2)};
    uint8_t scale[8], minimum[8];
    for (size_t j = 0; j < 8; ++j) {
        choose(Part<32>(values + 32 * j), lines[j], unit, levels, scale[j], minimum[j]);
        const float step = unit.scale * static_cast<float>(scale[j]);
        const float offset = unit.minimum * static_cast<float>(minimum[j]);
        const float inverse = step > 0 ? 1 / step : 0.0F;
        for (size_t i = 32 * j; i < 32 * (j + 1); ++i) {
            const float q = nearest((values[i] + offset) * inverse);
            n[i] = static_cast<uint8_t>(std::clamp(q, 0.0F, levels));
        }
    }
    put_scales(scale, minimum, out + 4);
}

// Packs low four bits: of each 64 integers, the second half goes above the first.
void put_nibbles(const uint8_t *n, uint8_t *out) {
    for (size_t i = 0; i < kSuperBlock / 2; ++i) {
        const size_t low = i / 32 * 64 + i % 32;
        out[i] = static_cast<uint8_t>((n[low] & 15) | (n[low + 32] & 15) << 4);
    }
}

// Returns the scale for integers from -32 to 31. The extreme value may have either sign, as the
// scale may.
float fit_scale(const Part<16> &part) {
    constexpr int kTrials = 9; // to either side
    const float extreme = part.most > -part.least ? part.most : part.least;
    if (extreme == 0) {
        return 0;
    }
    float best = 0, best_gain = -1;
    for (int trial = -kTrials; trial <= kTrials; ++trial) {
        const float inverse = (-32.0F + 0.1F * static_cast<float>(trial)) / extreme;
        Lanes nn{}, xn{};
        for (size_t i = 0; i < 16 / kLanes; ++i) {
            const Lanes q = at_least(at_most(nearest(part.x[i] * inverse), 31), -32);
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

} // namespace

void encode_q4_k(const float *values, uint8_t *out) {
    uint8_t n[kSuperBlock];
    fit_with_minima(values, 15, out, n);
    put_nibbles(n, out + 16);
}

void encode_q5_k(const float *values, uint8_t *out) {
    uint8_t n[kSuperBlock];
    fit_with_minima(values, 31, out, n);
    uint8_t *fifth = out + 16;
    std::fill_n(fifth, 32, uint8_t{0});
    for (size_t i = 0; i < kSuperBlock; ++i) {
        fifth[i % 32] = static_cast<uint8_t>(fifth[i % 32] | n[i] >> 4 << i / 32);
    }
    put_nibbles(n, out + 48);
}

void encode_q6_k(const float *values, uint8_t *out) {
    // Each part's scale, then the block's, which holds the largest in eight bits.
    float scales[16];
    float extreme = 0;
    for (size_t j = 0; j < 16; ++j) {
        scales[j] = fit_scale(Part<16>(values + 16 * j));
        extreme = std::fabs(scales[j]) > std::fabs(extreme) ? scales[j] : extreme;
    }
    const float d = stored(extreme / -128, out + 208);
    uint8_t n[kSuperBlock];
    for (size_t j = 0; j < 16; ++j) {
        const float sc = d != 0 ? std::clamp(nearest(scales[j] / d), -128.0F, 127.0F) : 0.0F;
        out[192 + j] = static_cast<uint8_t>(static_cast<int8_t>(sc));
        const float step = d * sc;
        for (size_t i = 16 * j; i < 16 * (j + 1); ++i) {
            const float q = step != 0 ? nearest(values[i] / step) : 0.0F;
            n[i] = static_cast<uint8_t>(std::clamp(q, -32.0F, 31.0F) + 32);
        }
    }
    put_six_bits(n, out);
}

} // namespace stasis
