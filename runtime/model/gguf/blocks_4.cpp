// Encodes blocks whose four bits stand for one of 16 values (IQ4_NL, IQ4_XS, MXFP4).
#include "runtime/kernels/quantized.h"
#include "runtime/model/gguf/blocks.h"
#include "runtime/model/gguf/fit.h"

namespace stasis {

namespace {

constexpr size_t kBlock = 32;
using kernels::kIq4Values;
using kernels::kMxfp4Values;

// For each half h of -128 to 127.5, the position and the value of the 16 that is next to numbers
// from h to h + 0.5: the middles between the 16 are whole or halves themselves.
struct Halves {
    uint8_t index[512];
    float value[512];
};
constexpr Halves kHalves = [] {
    Halves halves{};
    uint8_t index = 0;
    for (int h = -256; h < 256; ++h) {
        while (index < 15 && h >= kIq4Values[index] + kIq4Values[index + 1]) {
            ++index;
        }
        halves.index[h + 256] = index;
        halves.value[h + 256] = kIq4Values[index];
    }
    return halves;
}();

using Ints = int32_t __attribute__((vector_size(16)));

// Returns the place of each lane in kHalves.
Ints half_of(Lanes x) {
    return __builtin_convertvector(at_most(at_least(2.0F * x + 256.0F, 0), 511), Ints);
}

// Returns the value next to each lane.
Lanes next_value(Lanes x) {
    const Ints at = half_of(x);
    return Lanes{kHalves.value[at[0]], kHalves.value[at[1]], kHalves.value[at[2]],
                 kHalves.value[at[3]]};
}

// Returns the scale for the 16 values: of several trials, the least-squares solution with the least
// error. The extreme value is near the first of the 16, which has the largest magnitude.
float fit_values(const Part<kBlock> &part) {
    constexpr int kTrials = 7; // to either side
    const float extreme = part.most > -part.least ? part.most : part.least;
    if (extreme == 0) {
        return 0;
    }
    float best = 0, best_gain = -1;
    for (int trial = -kTrials; trial <= kTrials; ++trial) {
        const float inverse = static_cast<float>(kIq4Values[0] + trial) / extreme;
        Lanes qq{}, xq{};
        for (size_t i = 0; i < kBlock / kLanes; ++i) {
            const Lanes q = next_value(part.x[i] * inverse);
            const Lanes wq = part.w[i] * q;
            qq += wq * q;
            xq += wq * part.x[i];
        }
        // Least squares leaves an error of the sum of w x^2 less this gain.
        const float squares = sum(qq), product = sum(xq);
        const float gain = product * product / squares; // no value is zero
        if (gain > best_gain) {
            best_gain = gain;
            best = product / squares;
        }
    }
    return best;
}

// Returns the weighted squared error of a part under a scale.
float error_of(const Part<kBlock> &part, float scale) {
    Lanes error{};
    const float inverse = scale != 0 ? 1 / scale : 0.0F;
    for (size_t i = 0; i < kBlock / kLanes; ++i) {
        const Lanes off = scale * next_value(part.x[i] * inverse) - part.x[i];
        error += part.w[i] * (off * off);
    }
    return sum(error);
}

// Stores the positions of the values next to a part's, 0..15 below 16..31.
void put_values(const float *values, float scale, uint8_t *out) {
    const float inverse = scale != 0 ? 1 / scale : 0.0F;
    uint8_t index[kBlock];
    for (size_t i = 0; i < kBlock; i += kLanes) {
        Lanes x;
        std::memcpy(&x, values + i, sizeof x);
        const Ints at = half_of(x * inverse);
        for (size_t lane = 0; lane < kLanes; ++lane) {
            index[i + lane] = kHalves.index[at[lane]];
        }
    }
    for (size_t i = 0; i < kBlock / 2; ++i) {
        out[i] = static_cast<uint8_t>(index[i] | index[i + kBlock / 2] << 4);
    }
}

// Returns the position of the first of the values that is next to x.
uint8_t next_float(float x, float d) {
    uint8_t index = 0;
    for (uint8_t i = 1; i < 16; ++i) {
        const auto off = [&](uint8_t at) {
            return std::fabs(d * static_cast<float>(kMxfp4Values[at]) - x);
        };
        index = off(i) < off(index) ? i : index;
    }
    return index;
}

} // namespace

void encode_iq4_nl(const float *values, uint8_t *out) {
    const float d = stored(fit_values(Part<kBlock>(values)), out);
    put_values(values, d, out + 2);
}

void encode_iq4_xs(const float *values, uint8_t *out) {
    // Each part's scale, then the block's, which holds the largest in six bits.
    constexpr size_t kParts = 8;
    float scales[kParts];
    float extreme = 0;
    for (size_t j = 0; j < kParts; ++j) {
        scales[j] = fit_values(Part<kBlock>(values + kBlock * j));
        extreme = std::fabs(scales[j]) > std::fabs(extreme) ? scales[j] : extreme;
    }
    const float d = stored(extreme / -32, out);
    std::fill_n(out + 2, 6, uint8_t{0});
    for (size_t j = 0; j < kParts; ++j) {
        // The stored integer of the scale: the nearest one, or a neighbour with a smaller error.
        const Part<kBlock> part(values + kBlock * j);
        const float nearest_scale = d != 0 ? nearest(scales[j] / d) : 0.0F;
        float sc = 0, best = HUGE_VALF;
        for (const float off : {0.0F, -1.0F, 1.0F}) {
            const float tried = std::clamp(nearest_scale + off, -32.0F, 31.0F);
            const float error = error_of(part, d * tried);
            if (error < best) {
                best = error;
                sc = tried;
            }
        }
        const auto bits = static_cast<unsigned>(static_cast<int>(sc) + 32);
        out[2 + j / 4] = static_cast<uint8_t>(out[2 + j / 4] | bits >> 4 << 2 * (j % 4));
        out[4 + j / 2] = static_cast<uint8_t>(out[4 + j / 2] | (bits & 15) << 4 * (j % 2));
        put_values(values + kBlock * j, d * sc, out + 8 + kBlock / 2 * j);
    }
}

// The exponent puts the largest magnitude between 4 and 8, as the published quantizer (ggml's
// gguf-py, gguf/quants.py, 0.19) does, whose logarithm rounds up next to a power of two. Ties go to
// the first of the values.
void encode_mxfp4(const float *values, uint8_t *out) {
    float largest = 0;
    for (size_t i = 0; i < kBlock; ++i) {
        largest = std::max(largest, std::fabs(values[i]));
    }
    constexpr int kBias = 127, kTop = 2;
    const int exponent = largest > 0 ? std::max(std::ilogb(largest) - kTop + kBias, 0) : 0;
    out[0] = static_cast<uint8_t>(exponent);
    const float d = std::ldexp(1.0F, exponent - kBias - 1);
    for (size_t i = 0; i < kBlock / 2; ++i) {
        const uint8_t low = next_float(values[i], d);
        out[1 + i] = static_cast<uint8_t>(low | next_float(values[i + kBlock / 2], d) << 4);
    }
}

} // namespace stasis
