// Quantized activations (C8) as products read them, in groups of up to 16 rows. More than three
// rows are filled up to a multiple of four, more than 16 to whole groups. A group holds, block by
// block, the integers of its rows; scales and sums in the same order follow behind the integers of
// all groups.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stasis::kernels::STASIS_TABLE {

inline constexpr size_t kGroupRows = 16;
inline constexpr size_t kFewRows = 3; // these are not filled up

// Returns where the sum of part i is, and which part's sum is at i.
constexpr size_t place_of_sum(size_t i) {
    return i % 4 == 1 || i % 4 == 2 ? i ^ 3 : i;
}

// What the integers of a row add up to in a block of 32 elements.
struct BlockSum {
    int32_t sum;
    int32_t negative; // -sum
};
// The same of each 16 and 32 elements of a block of 256: pairs of weights multiply pairs of sums.
// Of each four, the second and the third are exchanged, because four weights that are bytes of a
// word become two pairs by one shift: 0 and 2, 1 and 3.
struct BlockSums {
    int16_t of_16[16];
    int16_t of_32[8];
};

struct Activations {
    uint8_t *packed;
    size_t rows;  // with those that fill up
    size_t width; // of a group
    size_t blocks, elements;

    Activations(void *where, size_t real_rows, size_t depth, size_t group)
        : packed(static_cast<uint8_t *>(where)), rows(filled(real_rows)),
          width(rows < kGroupRows ? rows : kGroupRows), blocks(depth / group), elements(group) {}
    Activations(const void *where, size_t real_rows, size_t depth, size_t group)
        : Activations(const_cast<void *>(where), real_rows, depth, group) {}

    static size_t filled(size_t rows) {
        const size_t multiple = rows <= kFewRows ? 1 : rows <= kGroupRows ? 4 : kGroupRows;
        return (rows + multiple - 1) / multiple * multiple;
    }

    // Integers, scales and sums are counted by entries: [group][block][width].
    size_t entry(size_t row, size_t block) const {
        return row / width * width * blocks + block * width + row % width;
    }
    size_t entries() const { return rows * blocks; }
    int8_t *integers(size_t at) const { return reinterpret_cast<int8_t *>(packed) + at * elements; }
    float *scales(size_t at) const {
        return reinterpret_cast<float *>(packed + entries() * elements) + at;
    }
    template <typename Sums> Sums *sums(size_t at) const {
        const size_t begin = entries() * (elements + sizeof(float));
        return reinterpret_cast<Sums *>(packed + begin) + at;
    }
    size_t bytes() const {
        const size_t sums = elements == 32 ? sizeof(BlockSum) : sizeof(BlockSums);
        return entries() * (elements + sizeof(float) + sums);
    }
};

} // namespace stasis::kernels::STASIS_TABLE
