// Conversion of bf16 numbers to and from two planes of bytes, exponents and mantissas, and of f32
// numbers to and from two planes of halves (FORMAT.md, "Codecs"). Plain loops at the speed of
// memory. Must not know codecs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stasis::format {

// bf16 numbers [row][slot][channel]; in a run, rows are [layer][key, value][kv_head] and channels
// are head_dim. No dimension is zero, and a row has fewer than 2^31 numbers.
struct RunShape {
    size_t rows = 0;
    size_t slots = 0;
    size_t channels = 0;
    size_t numbers() const { return rows * slots * channels; }
    size_t bytes() const { return numbers() * sizeof(uint16_t); }
};

// Separate numbers into the two planes and join them. A mantissa's byte has the sign in bit 7. Both
// planes keep the order of the numbers.
void split_planes(const uint16_t *numbers, size_t count, uint8_t *exponents, uint8_t *mantissas);
void merge_planes(const uint8_t *exponents, const uint8_t *mantissas, size_t count,
                  uint16_t *numbers);

// Separate f32 numbers into their upper halves, which are bf16 numbers, and their lower halves, and
// join them.
void split_halves(const float *numbers, size_t count, uint16_t *upper, uint16_t *lower);
void join_halves(const uint16_t *upper, const uint16_t *lower, size_t count, float *numbers);

// Returns whether no number is an infinity or NaN.
bool all_finite(const float *numbers, size_t count);

// Subtract each channel's centre from its exponents, and add it again, mod 256. A centre is the
// rounded mean over the slots of the row. Centres are [row][channel].
void subtract_centres(const RunShape &shape, uint8_t *exponents, uint8_t *centres);
void add_centres(const RunShape &shape, const uint8_t *centres, uint8_t *exponents);

} // namespace stasis::format
