// bf16 numbers to and from two planes of bytes, exponents and mantissas (FORMAT.md, "Codecs").
// Plain loops at the speed of memory; knows nothing of what becomes of the planes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stasis::format {

// bf16 numbers [row][slot][channel]; in a run, rows are [layer][key, value][kv_head] and channels
// are head_dim. None is zero, and a row has fewer than 2^31 numbers.
struct RunShape {
    size_t rows = 0;
    size_t slots = 0;
    size_t channels = 0;
    size_t numbers() const { return rows * slots * channels; }
    size_t bytes() const { return numbers() * sizeof(uint16_t); }
};

// A mantissa's byte has the sign in bit 7. Both planes keep the order of the numbers.
void split_planes(const uint16_t *numbers, size_t count, uint8_t *exponents, uint8_t *mantissas);
void merge_planes(const uint8_t *exponents, const uint8_t *mantissas, size_t count,
                  uint16_t *numbers);

// Subtracts from exponents their channel's centre, mod 256: its rounded mean over the slots of the
// row. Centres are [row][channel].
void subtract_centres(const RunShape &shape, uint8_t *exponents, uint8_t *centres);
void add_centres(const RunShape &shape, const uint8_t *centres, uint8_t *exponents);

} // namespace stasis::format
