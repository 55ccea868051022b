// Makes strips; see strips.h. Plain loops, because each weight is handled once, when a model is
// opened.
#include "runtime/kernels/strips.h"

#include <cassert>
#include <cstring>

namespace stasis::kernels {

namespace {

// Moves bit 4 i + k to bit 8 k + i.
uint32_t order_fifth_bits(uint32_t bits) {
    uint32_t ordered = 0;
    for (size_t i = 0; i < 8; ++i) {
        const uint32_t four = (bits >> 4 * i) & 15;
        // The multiplication makes four copies, 7 bits apart: copy k has bit k at bit 8 k.
        ordered |= ((four * 0x00204081U) & 0x01010101U) << i;
    }
    return ordered;
}

// Returns the index of the word with the fifth bits, counted from strip_block().first; kNone if
// there is none.
size_t word_of_fifth_bits(Quant type) {
    constexpr size_t kNone = SIZE_MAX;
    return type == Quant::q5_0 ? 0 : type == Quant::q5_1 ? 1 : kNone;
}

void put_block(Quant type, const StripBlock &shape, const uint8_t *block, size_t output,
               uint8_t *to) {
    for (size_t i = 0; i < shape.words; ++i) {
        uint32_t word;
        std::memcpy(&word, block + shape.first + 4 * i, sizeof word);
        if (i == word_of_fifth_bits(type)) {
            word = order_fifth_bits(word);
        }
        std::memcpy(to + 4 * (strip_word(type, i) * kStripOutputs + output), &word, sizeof word);
    }
    const size_t rest = shape.rest_bytes();
    std::memcpy(to + 4 * shape.words * kStripOutputs + rest * output, block + shape.rest, rest);
}

} // namespace

void make_strip(Quant type, const uint8_t *rows, size_t row_bytes, size_t outputs, size_t depth,
                uint8_t *strip) {
    const StripBlock shape = strip_block(type);
    const QuantBlock published = quant_block(type);
    assert(outputs >= 1 && outputs <= kStripOutputs && depth % published.elements == 0);
    for (size_t block = 0; block < depth / published.elements; ++block, strip += shape.bytes) {
        // Outputs past the matrix are blocks of zeros.
        if (outputs < kStripOutputs) {
            std::memset(strip, 0, shape.bytes);
        }
        for (size_t output = 0; output < outputs; ++output) {
            put_block(type, shape, rows + output * row_bytes + block * published.bytes, output,
                      strip);
        }
    }
}

} // namespace stasis::kernels
