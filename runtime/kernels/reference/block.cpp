// Unpacks blocks: the layouts of C8, field by field; see block.h.
#include "runtime/kernels/reference/block.h"

#include <cassert>

namespace stasis::kernels::STASIS_REFERENCE {

namespace {

// Reads an f16: 1, 5 and 10 bits; every one is a normal f32 or zero.
float read_f16(const uint8_t *bytes) {
    const auto bits = static_cast<uint32_t>(bytes[0] | bytes[1] << 8);
    const uint32_t sign = (bits & 0x8000U) << 16, exponent = bits >> 10 & 31U;
    const uint32_t fraction = bits & 0x3FFU;
    if (exponent == 0) {
        const float value = static_cast<float>(fraction) * 0x1p-24F;
        return sign != 0 ? -value : value;
    }
    const uint32_t widened = exponent == 31 ? 255 : exponent + 127 - 15;
    return __builtin_bit_cast(float, sign | widened << 23 | fraction << 13);
}

// Reads the low halves of 16 or 32 bytes, then the high ones.
void read_nibbles(const uint8_t *bytes, size_t count, int8_t *n) {
    for (size_t i = 0; i < count; ++i) {
        n[i] = static_cast<int8_t>(bytes[i] & 15);
        n[count + i] = static_cast<int8_t>(bytes[i] >> 4);
    }
}

void add_fifth_bits(const uint8_t *bits, int8_t *n) {
    for (size_t i = 0; i < 32; ++i) {
        n[i] = static_cast<int8_t>(n[i] | (bits[i / 8] >> i % 8 & 1) << 4);
    }
}

void subtract(int value, size_t count, int8_t *n) {
    for (size_t i = 0; i < count; ++i) {
        n[i] = static_cast<int8_t>(n[i] - value);
    }
}

Block simple(const uint8_t *bytes, bool has_minimum) {
    Block block{};
    block.d = read_f16(bytes);
    block.m = has_minimum ? read_f16(bytes + 2) : 0.0F;
    block.has_minimum = has_minimum;
    block.parts = 1;
    block.part_elements = 32;
    block.scale[0] = 1;
    block.minimum[0] = has_minimum ? 1 : 0;
    return block;
}

Block four_bits(const uint8_t *bytes, bool has_minimum) {
    Block block = simple(bytes, has_minimum);
    read_nibbles(bytes + (has_minimum ? 4 : 2), 16, block.n);
    subtract(has_minimum ? 0 : 8, 32, block.n);
    return block;
}

Block five_bits(const uint8_t *bytes, bool has_minimum) {
    Block block = simple(bytes, has_minimum);
    const uint8_t *bits = bytes + (has_minimum ? 4 : 2);
    read_nibbles(bits + 4, 16, block.n);
    add_fifth_bits(bits, block.n);
    subtract(has_minimum ? 0 : 16, 32, block.n);
    return block;
}

Block eight_bits(const uint8_t *bytes) {
    Block block = simple(bytes, false);
    __builtin_memcpy(block.n, bytes + 2, 32);
    return block;
}

// Element i of Q2_K and Q3_K: two bits of each of the four runs of 32 in a half are in a byte.
int two_bits(const uint8_t *bytes, size_t i) {
    return bytes[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3;
}

Block two_bits_k(const uint8_t *bytes) {
    Block block{};
    block.d = read_f16(bytes + 80);
    block.m = -read_f16(bytes + 82);
    block.has_minimum = true;
    block.parts = 16;
    block.part_elements = 16;
    for (size_t j = 0; j < 16; ++j) {
        block.scale[j] = bytes[j] & 15;
        block.minimum[j] = bytes[j] >> 4;
    }
    for (size_t i = 0; i < 256; ++i) {
        block.n[i] = static_cast<int8_t>(two_bits(bytes + 16, i));
    }
    return block;
}

Block three_bits_k(const uint8_t *bytes) {
    Block block{};
    const uint8_t *b = bytes + 96;
    block.d = read_f16(bytes + 108);
    block.parts = 16;
    block.part_elements = 16;
    for (size_t j = 0; j < 16; ++j) {
        const int low = b[j % 8] >> j / 8 * 4 & 15, high = b[8 + j % 4] >> j / 4 * 2 & 3;
        block.scale[j] = static_cast<int16_t>((low | high << 4) - 32);
    }
    for (size_t i = 0; i < 256; ++i) {
        const int high = bytes[i % 32] >> i / 32 & 1;
        block.n[i] = static_cast<int8_t>((two_bits(bytes + 32, i) | high << 2) - 4);
    }
    return block;
}

// Replaces four bits by what they stand for.
void look_up(const int8_t (&values)[16], size_t count, int8_t *n) {
    for (size_t i = 0; i < count; ++i) {
        n[i] = values[n[i]];
    }
}

Block iq4_nl(const uint8_t *bytes) {
    Block block = simple(bytes, false);
    read_nibbles(bytes + 2, 16, block.n);
    look_up(kIq4Values, 32, block.n);
    return block;
}

Block mxfp4(const uint8_t *bytes) {
    Block block{};
    const uint32_t exponent = bytes[0] == 0 ? 0 : bytes[0] - 1U; // of an f32: 0 is zero
    block.d = __builtin_bit_cast(float, exponent << 23);
    block.parts = 1;
    block.part_elements = 32;
    block.scale[0] = 1;
    read_nibbles(bytes + 1, 16, block.n);
    look_up(kMxfp4Values, 32, block.n);
    return block;
}

Block iq4_xs(const uint8_t *bytes) {
    Block block{};
    block.d = read_f16(bytes);
    block.parts = 8;
    block.part_elements = 32;
    const int upper = bytes[2] | bytes[3] << 8;
    for (size_t j = 0; j < 8; ++j) {
        const int lower = bytes[4 + j / 2] >> 4 * (j % 2) & 15;
        block.scale[j] = static_cast<int16_t>((lower | (upper >> 2 * j & 3) << 4) - 32);
        read_nibbles(bytes + 8 + 16 * j, 16, block.n + 32 * j);
    }
    look_up(kIq4Values, 256, block.n);
    return block;
}

// Unpacks Q4_K and Q5_K: scales and minima of six bits, and the low four bits of each weight.
Block super_block(const uint8_t *bytes, const uint8_t *nibbles) {
    Block block{};
    const uint8_t *b = bytes + 4;
    block.d = read_f16(bytes);
    block.m = -read_f16(bytes + 2);
    block.has_minimum = true;
    block.parts = 8;
    block.part_elements = 32;
    // The first four scales and minima have their six bits in one byte; the others are split.
    for (size_t j = 0; j < 4; ++j) {
        block.scale[j] = b[j] & 63;
        block.minimum[j] = b[j + 4] & 63;
        block.scale[j + 4] = static_cast<int16_t>((b[j + 8] & 15) + (b[j] >> 6) * 16);
        block.minimum[j + 4] = static_cast<int16_t>((b[j + 8] >> 4) + (b[j + 4] >> 6) * 16);
        read_nibbles(nibbles + 32 * j, 32, block.n + 64 * j);
    }
    return block;
}

Block five_bits_k(const uint8_t *bytes) {
    Block block = super_block(bytes, bytes + 48);
    for (size_t i = 0; i < 256; ++i) {
        block.n[i] = static_cast<int8_t>(block.n[i] | (bytes[16 + i % 32] >> i / 32 & 1) << 4);
    }
    return block;
}

Block six_bits_k(const uint8_t *bytes) {
    Block block{};
    block.d = read_f16(bytes + 208);
    block.parts = 16;
    block.part_elements = 16;
    for (size_t j = 0; j < 16; ++j) {
        block.scale[j] = static_cast<int8_t>(bytes[192 + j]);
    }
    for (size_t i = 0; i < 256; ++i) {
        const size_t half = i / 128, g = i % 128 / 32, l = i % 32;
        const uint8_t low = bytes[64 * half + 32 * (g & 1) + l];
        const uint8_t high = bytes[128 + 32 * half + l];
        const int four = g < 2 ? low & 15 : low >> 4;
        block.n[i] = static_cast<int8_t>((four | (high >> 2 * g & 3) << 4) - 32);
    }
    return block;
}

} // namespace

Block read_block(Quant type, const uint8_t *bytes) {
    switch (type) {
    case Quant::q8_0:
        return eight_bits(bytes);
    case Quant::q4_0:
        return four_bits(bytes, false);
    case Quant::q4_1:
        return four_bits(bytes, true);
    case Quant::q5_0:
        return five_bits(bytes, false);
    case Quant::q5_1:
        return five_bits(bytes, true);
    case Quant::q4_k:
        return super_block(bytes, bytes + 16);
    case Quant::q5_k:
        return five_bits_k(bytes);
    case Quant::q6_k:
        return six_bits_k(bytes);
    case Quant::q2_k:
        return two_bits_k(bytes);
    case Quant::q3_k:
        return three_bits_k(bytes);
    case Quant::iq4_nl:
        return iq4_nl(bytes);
    case Quant::iq4_xs:
        return iq4_xs(bytes);
    case Quant::mxfp4:
        return mxfp4(bytes);
    }
    return {};
}

Block read_strip_block(Quant type, const uint8_t *bytes, size_t output) {
    assert(output < kStripOutputs);
    constexpr size_t kBytesMost = 210;
    // Restores the published order of the block's bytes, then unpacks it.
    const StripBlock shape = strip_block(type);
    uint8_t published[kBytesMost];
    for (size_t i = 0; i < shape.words; ++i) {
        __builtin_memcpy(published + shape.first + 4 * i,
                         bytes + 4 * (strip_word(type, i) * kStripOutputs + output), 4);
    }
    const size_t rest = shape.rest_bytes();
    const uint8_t *rests = bytes + 4 * shape.words * kStripOutputs;
    __builtin_memcpy(published + shape.rest, rests + rest * output, rest);
    if (type == Quant::q5_0 || type == Quant::q5_1) {
        uint8_t *bits = published + (type == Quant::q5_0 ? 2 : 4), ordered[4] = {};
        for (size_t e = 0; e < 32; ++e) { // element e = 4 i + k is bit i of byte k
            ordered[e / 8] |= static_cast<uint8_t>((bits[e % 4] >> e / 4 & 1) << e % 8);
        }
        __builtin_memcpy(bits, ordered, sizeof ordered);
    }
    return read_block(type, published);
}

} // namespace stasis::kernels::STASIS_REFERENCE
