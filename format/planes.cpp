// Loops that compilers vectorise; see planes.h. Compiled with -O3, which g++ 12 needs for that.
#include "format/planes.h"

#include <algorithm>
#include <array>
#include <bit>

namespace stasis::format {

void split_planes(const uint16_t *__restrict numbers, size_t count, uint8_t *__restrict exponents,
                  uint8_t *__restrict mantissas) {
    for (size_t i = 0; i < count; ++i) {
        const uint16_t bits = numbers[i];
        exponents[i] = static_cast<uint8_t>(bits >> 7);
        mantissas[i] = static_cast<uint8_t>((bits >> 8 & 0x80) | (bits & 0x7F));
    }
}

void merge_planes(const uint8_t *__restrict exponents, const uint8_t *__restrict mantissas,
                  size_t count, uint16_t *__restrict numbers) {
    for (size_t i = 0; i < count; ++i) {
        const uint16_t mantissa = mantissas[i];
        const uint16_t exponent = exponents[i];
        numbers[i] =
            static_cast<uint16_t>((mantissa & 0x80) << 8 | exponent << 7 | (mantissa & 0x7F));
    }
}

void split_halves(const float *__restrict numbers, size_t count, uint16_t *__restrict upper,
                  uint16_t *__restrict lower) {
    for (size_t i = 0; i < count; ++i) {
        const auto bits = std::bit_cast<uint32_t>(numbers[i]);
        upper[i] = static_cast<uint16_t>(bits >> 16);
        lower[i] = static_cast<uint16_t>(bits);
    }
}

void join_halves(const uint16_t *__restrict upper, const uint16_t *__restrict lower, size_t count,
                 float *__restrict numbers) {
    for (size_t i = 0; i < count; ++i) {
        numbers[i] = std::bit_cast<float>(uint32_t{upper[i]} << 16 | lower[i]);
    }
}

// A maximum without branches, in signed numbers, which SSE2 has comparisons for.
bool all_finite(const float *__restrict numbers, size_t count) {
    int32_t most = 0;
    for (size_t i = 0; i < count; ++i) {
        most = std::max(most, std::bit_cast<int32_t>(numbers[i]) & 0x7F800000);
    }
    return most != 0x7F800000;
}

namespace {

// Channels whose sums are computed together, in registers or the first-level cache.
constexpr size_t kTogether = 64;

// Writes the centres of `count` channels of a row: the rounded mean over its slots.
void find_centres(const uint8_t *__restrict exponents, const RunShape &shape, size_t count,
                  uint8_t *__restrict centres) {
    std::array<uint32_t, kTogether> sums{};
    for (size_t slot = 0; slot < shape.slots; ++slot) {
        for (size_t i = 0; i < count; ++i) {
            sums[i] += exponents[slot * shape.channels + i];
        }
    }
    const auto slots = static_cast<uint32_t>(shape.slots);
    for (size_t i = 0; i < count; ++i) {
        centres[i] = static_cast<uint8_t>((sums[i] + slots / 2) / slots);
    }
}

void subtract(const uint8_t *__restrict centres, size_t count, uint8_t *__restrict exponents) {
    for (size_t i = 0; i < count; ++i) {
        exponents[i] = static_cast<uint8_t>(exponents[i] - centres[i]);
    }
}

void add(const uint8_t *__restrict centres, size_t count, uint8_t *__restrict exponents) {
    for (size_t i = 0; i < count; ++i) {
        exponents[i] = static_cast<uint8_t>(exponents[i] + centres[i]);
    }
}

} // namespace

void subtract_centres(const RunShape &shape, uint8_t *exponents, uint8_t *centres) {
    for (size_t row = 0; row < shape.rows; ++row) {
        for (size_t begin = 0; begin < shape.channels; begin += kTogether) {
            find_centres(exponents + begin, shape, std::min(kTogether, shape.channels - begin),
                         centres + begin);
        }
        for (size_t slot = 0; slot < shape.slots; ++slot) {
            subtract(centres, shape.channels, exponents);
            exponents += shape.channels;
        }
        centres += shape.channels;
    }
}

void add_centres(const RunShape &shape, const uint8_t *centres, uint8_t *exponents) {
    for (size_t row = 0; row < shape.rows; ++row) {
        for (size_t slot = 0; slot < shape.slots; ++slot) {
            add(centres, shape.channels, exponents);
            exponents += shape.channels;
        }
        centres += shape.channels;
    }
}

} // namespace stasis::format
