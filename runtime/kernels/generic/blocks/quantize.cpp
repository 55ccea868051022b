// Activations to 8-bit integers (C8). Plain loops: compilers make vectors of all of them.
#include "runtime/kernels/bf16.h"
#include "runtime/kernels/generic/blocks/kernels.h"
#include "runtime/kernels/generic/blocks/packed.h"

namespace stasis::kernels::STASIS_TABLE {
namespace {

template <size_t n> [[gnu::always_inline]] inline int32_t sum_of_integers(const int8_t *q) {
    int32_t sum = 0;
    for (size_t i = 0; i < n; ++i) {
        sum += q[i];
    }
    return sum;
}

template <size_t n>
[[gnu::always_inline]] inline void quantize_block(const uint16_t *x, int8_t *q, float &scale) {
    constexpr uint16_t kMagnitude = 0x7FFF, kInfinity = 0x7F80;
    uint16_t largest = 0;
    for (size_t i = 0; i < n; ++i) {
        const auto size = static_cast<uint16_t>(x[i] & kMagnitude);
        largest = size > largest ? size : largest;
    }
    const float a = bf16_to_f32(largest);
    if (largest >= kInfinity || a < 0x1p-100F) [[unlikely]] {
        scale = largest >= kInfinity ? __builtin_nanf("") : 0.0F;
        __builtin_memset(q, 0, n);
        return;
    }
    scale = a / 127.0F;
    const float inverse = 127.0F / a;
    for (size_t i = 0; i < n; ++i) {
        constexpr float kRound = 0x1.8p+23F; // adding it rounds to an integer, nearest even
        const float shifted = bf16_to_f32(x[i]) * inverse + kRound;
        q[i] = static_cast<int8_t>(__builtin_bit_cast(int32_t, shifted));
    }
}

// One row of blocks of 32.
[[gnu::noinline]] void quantize_by_32(const Activations &to, const uint16_t *x, size_t row) {
    for (size_t block = 0; block < to.blocks; ++block) {
        const size_t entry = to.entry(row, block);
        int8_t *q = to.integers(entry);
        quantize_block<32>(x + block * 32, q, *to.scales(entry));
        const int32_t sum = sum_of_integers<32>(q);
        *to.sums<BlockSum>(entry) = {sum, -sum};
    }
}

[[gnu::noinline]] void quantize_by_256(const Activations &to, const uint16_t *x, size_t row) {
    for (size_t block = 0; block < to.blocks; ++block) {
        const size_t entry = to.entry(row, block);
        int8_t *q = to.integers(entry);
        quantize_block<256>(x + block * 256, q, *to.scales(entry));
        BlockSums &sums = *to.sums<BlockSums>(entry);
        int16_t of_16[16];
        for (size_t i = 0; i < 16; ++i) {
            of_16[i] = static_cast<int16_t>(sum_of_integers<16>(q + 16 * i));
            sums.of_16[place_of_sum(i)] = of_16[i];
        }
        for (size_t i = 0; i < 8; ++i) {
            sums.of_32[place_of_sum(i)] = static_cast<int16_t>(of_16[2 * i] + of_16[2 * i + 1]);
        }
    }
}

// A row that fills up a group: multiplied with the others, and read by nobody.
void clear_row(const Activations &to, size_t row) {
    for (size_t block = 0; block < to.blocks; ++block) {
        const size_t entry = to.entry(row, block);
        __builtin_memset(to.integers(entry), 0, to.elements);
        *to.scales(entry) = 0.0F;
        if (to.elements == 32) {
            *to.sums<BlockSum>(entry) = {};
        } else {
            *to.sums<BlockSums>(entry) = {};
        }
    }
}

size_t quantized_bytes(size_t rows, size_t depth, size_t group) {
    return Activations(static_cast<void *>(nullptr), rows, depth, group).bytes();
}

void quantize(const Quantize &task, size_t begin, size_t end) {
    const Activations to(task.packed, task.rows, task.depth, task.group);
    for (size_t row = begin; row < end; ++row) {
        const uint16_t *x = task.x + row * task.x_stride;
        task.group == 32 ? quantize_by_32(to, x, row) : quantize_by_256(to, x, row);
    }
    for (size_t row = end; end == task.rows && row < to.rows; ++row) {
        clear_row(to, row);
    }
}

} // namespace

void add_quantize(Table &table) {
    table.quantize = quantize;
    table.quantized_bytes = quantized_bytes;
}

} // namespace stasis::kernels::STASIS_TABLE
