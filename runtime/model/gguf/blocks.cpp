// Encodes blocks; see blocks.h. Each type of 32 elements has one function of a few lines, in the
// order of arithmetic of gguf-py's quants.py.
#include "runtime/model/gguf/blocks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "runtime/kernels/bf16.h"

namespace stasis {

namespace {

constexpr size_t kBlock = 32;

void put_16(uint8_t *out, uint16_t bits) {
    std::memcpy(out, &bits, sizeof bits);
}

void put_f16(uint8_t *out, float value) {
    put_16(out, f32_to_f16(value));
}

float inverse(float d) {
    return d == 0 ? 0.0F : 1.0F / d;
}

// Rounds to nearest, halves away from zero, as roundf does; written as a few plain instructions.
int round_away(float value) {
    const float magnitude = std::fabs(value);
    const int whole = static_cast<int>(magnitude);
    const float rest = magnitude - static_cast<float>(whole);
    const int rounded = whole + static_cast<int>(2 * rest);
    return value < 0 ? -rounded : rounded;
}

float extreme(const float *x) {
    const auto by_magnitude = [](float a, float b) { return std::fabs(a) < std::fabs(b); };
    // The first of equal magnitudes counts.
    return *std::max_element(x, x + kBlock, by_magnitude);
}

void encode_q8_0(const float *x, uint8_t *out) {
    const float d = std::fabs(extreme(x)) / 127;
    const float id = inverse(d);
    put_f16(out, d);
    for (size_t i = 0; i < kBlock; ++i) {
        out[2 + i] = static_cast<uint8_t>(round_away(x[i] * id));
    }
}

// Stores the low four bits in nibbles, 0..15 below 16..31; a fifth bit, if any, in 32 bits before
// them.
void put_integers(const uint8_t *n, bool five, uint8_t *out) {
    if (five) {
        uint32_t fifth = 0;
        for (size_t i = 0; i < kBlock; ++i) {
            fifth |= static_cast<uint32_t>(n[i] >> 4) << i;
        }
        std::memcpy(out, &fifth, sizeof fifth);
        out += sizeof fifth;
    }
    for (size_t i = 0; i < kBlock / 2; ++i) {
        out[i] = static_cast<uint8_t>((n[i] & 15) | n[i + kBlock / 2] << 4);
    }
}

// Q4_0 (half = 8), Q5_0 (16): the value of largest magnitude becomes -half.
void encode_centred(const float *x, int half, uint8_t *out) {
    const float d = extreme(x) / static_cast<float>(-half);
    const float id = inverse(d);
    const float middle = static_cast<float>(half) + 0.5F;
    uint8_t n[kBlock];
    for (size_t i = 0; i < kBlock; ++i) {
        n[i] =
            static_cast<uint8_t>(std::clamp(static_cast<int>(x[i] * id + middle), 0, 2 * half - 1));
    }
    put_f16(out, d);
    put_integers(n, half == 16, out + 2);
}

// Q4_1 (15 steps), Q5_1 (31): the steps go from the least value to the greatest.
void encode_ranged(const float *x, int steps, uint8_t *out) {
    const auto [least, most] = std::minmax_element(x, x + kBlock);
    const float minimum = *least;
    const float d = (*most - minimum) / static_cast<float>(steps);
    const float id = inverse(d);
    uint8_t n[kBlock];
    for (size_t i = 0; i < kBlock; ++i) {
        n[i] = static_cast<uint8_t>(
            std::clamp(static_cast<int>((x[i] - minimum) * id + 0.5F), 0, steps));
    }
    put_f16(out, d);
    put_f16(out + 2, minimum);
    put_integers(n, steps == 31, out + 4);
}

void encode_block(GgufType type, const float *x, uint8_t *out) {
    switch (type) {
    case GgufType::q8_0:
        return encode_q8_0(x, out);
    case GgufType::q4_0:
        return encode_centred(x, 8, out);
    case GgufType::q5_0:
        return encode_centred(x, 16, out);
    case GgufType::q4_1:
        return encode_ranged(x, 15, out);
    case GgufType::q5_1:
        return encode_ranged(x, 31, out);
    case GgufType::q2_k:
        return encode_q2_k(x, out);
    case GgufType::q3_k:
        return encode_q3_k(x, out);
    case GgufType::q4_k:
        return encode_q4_k(x, out);
    case GgufType::q5_k:
        return encode_q5_k(x, out);
    case GgufType::q6_k:
        return encode_q6_k(x, out);
    case GgufType::iq4_nl:
        return encode_iq4_nl(x, out);
    case GgufType::iq4_xs:
        return encode_iq4_xs(x, out);
    case GgufType::mxfp4:
        return encode_mxfp4(x, out);
    case GgufType::f16:
        return put_f16(out, *x);
    case GgufType::bf16:
        return put_16(out, kernels::f32_to_bf16(*x));
    case GgufType::f32:
        std::memcpy(out, x, sizeof *x);
    }
}

} // namespace

uint16_t f32_to_f16(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t sign = bits >> 16 & 0x8000U;
    uint32_t magnitude = bits & 0x7FFFFFFFU;
    if (magnitude >= 0x47800000U) { // 2^16 and more
        return static_cast<uint16_t>(sign | (magnitude > 0x7F800000U ? 0x7E00U : 0x7C00U));
    }
    // Below 2^-14: next to 0.5, an f32 has the steps of f16's denormals.
    if (magnitude < 0x38800000U) {
        const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
        return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000U));
    }
    // Rounds to nearest even: half a unit, and one more if the last kept bit is odd.
    magnitude += 0xFFFU + (magnitude >> 13 & 1U);
    return static_cast<uint16_t>(sign | (magnitude - 0x38000000U) >> 13);
}

void encode(GgufType type, const float *values, size_t count, uint8_t *out) {
    const GgufBlock block = gguf_block(type);
    for (size_t i = 0; i < count; i += block.elements) {
        encode_block(type, values + i, out);
        out += block.size_bytes;
    }
}

} // namespace stasis
