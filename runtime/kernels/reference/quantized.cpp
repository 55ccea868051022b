// Products of integer weights with quantized activations (C8), a block at a time.
#include <cassert>

#include "runtime/kernels/bf16.h"
#include "runtime/kernels/reference/arithmetic.h"
#include "runtime/kernels/reference/block.h"
#include "runtime/kernels/reference/kernels.h"

namespace stasis::kernels::STASIS_REFERENCE {

namespace {

// The integers and scales of packed rows: rows of [depth] int8, then rows of [groups] f32.
struct Quantized {
    int8_t *integers;
    float *scales;
    size_t groups;

    Quantized(void *packed, size_t rows, size_t depth, size_t group)
        : integers(static_cast<int8_t *>(packed)),
          scales(reinterpret_cast<float *>(integers + rows * depth)), groups(depth / group) {}
};

void quantize_group(const uint16_t *x, size_t n, int8_t *q, float &scale) {
    constexpr uint16_t kMagnitude = 0x7FFF, kInfinity = 0x7F80;
    constexpr float kTiny = 0x1p-100F, kRound = 0x1.8p+23F;
    uint16_t largest = 0;
    for (size_t i = 0; i < n; ++i) {
        const auto magnitude = static_cast<uint16_t>(x[i] & kMagnitude);
        largest = magnitude > largest ? magnitude : largest;
    }
    const float a = bf16_to_f32(largest);
    if (largest >= kInfinity || a < kTiny) {
        scale = largest >= kInfinity ? __builtin_nanf("") : 0.0F;
        __builtin_memset(q, 0, n);
        return;
    }
    scale = a / 127.0F;
    const float inverse = 127.0F / a;
    for (size_t i = 0; i < n; ++i) {
        const float scaled = bf16_to_f32(x[i]) * inverse;
        const float shifted = scaled + kRound; // rounds to nearest even
        q[i] = static_cast<int8_t>(static_cast<int32_t>(shifted - kRound));
    }
}

// Computes both integers of one output and row of a block.
void integer_sums(const Block &block, const int8_t *q, int32_t &sum, int32_t &minimum) {
    sum = 0, minimum = 0;
    for (size_t j = 0; j < block.parts; ++j) {
        const size_t begin = j * block.part_elements;
        int32_t product = 0, total = 0;
        for (size_t i = begin; i < begin + block.part_elements; ++i) {
            product += int32_t{block.n[i]} * q[i];
            total += q[i];
        }
        sum += block.scale[j] * product;
        minimum += block.minimum[j] * total;
    }
}

size_t quantized_bytes(size_t rows, size_t depth, size_t group) {
    return rows * (depth + depth / group * sizeof(float));
}

void quantize(const Quantize &task, size_t begin, size_t end) {
    assert(task.group == 32 || task.group == 256);
    assert(task.depth % task.group == 0);
    const Quantized to(task.packed, task.rows, task.depth, task.group);
    for (size_t r = begin; r < end; ++r) {
        for (size_t g = 0; g < to.groups; ++g) {
            const size_t at = g * task.group;
            quantize_group(task.x + r * task.x_stride + at, task.group,
                           to.integers + r * task.depth + at, to.scales[r * to.groups + g]);
        }
    }
}

void matmul_quantized(const QuantizedMatmul &task) {
    const QuantBlock shape = quant_block(task.type);
    assert(task.depth % shape.elements == 0);
    const Quantized x(const_cast<void *>(task.packed), task.rows, task.depth, shape.elements);
    for (size_t n = 0; n < task.outputs; ++n) {
        for (size_t r = 0; r < task.rows; ++r) {
            task.y[r * task.y_stride + n] = 0.0F;
        }
        const uint8_t *strip = task.w + n / kStripOutputs * strip_bytes(task.type, task.depth);
        for (size_t g = 0; g < x.groups; ++g) {
            const Block block = read_strip_block(
                task.type, strip + g * strip_block(task.type).bytes, n % kStripOutputs);
            for (size_t r = 0; r < task.rows; ++r) {
                const float scale = x.scales[r * x.groups + g];
                float &y = task.y[r * task.y_stride + n];
                int32_t sum, minimum;
                integer_sums(block, x.integers + r * task.depth + g * shape.elements, sum, minimum);
                y = fma(static_cast<float>(sum), block.d * scale, y);
                if (block.has_minimum) {
                    y = fma(static_cast<float>(minimum), block.m * scale, y);
                }
            }
        }
    }
}

void embed_quantized(Quant type, const uint8_t *row, float scale, size_t n, float *y) {
    const QuantBlock shape = quant_block(type);
    assert(n % shape.elements == 0);
    for (size_t at = 0; at < n; at += shape.elements, row += shape.bytes) {
        const Block block = read_block(type, row);
        for (size_t i = 0; i < shape.elements; ++i) {
            const size_t j = i / block.part_elements;
            float value =
                (block.d * static_cast<float>(block.scale[j])) * static_cast<float>(block.n[i]);
            if (block.has_minimum) {
                value = value + block.m * static_cast<float>(block.minimum[j]);
            }
            y[at + i] = value * scale;
        }
    }
}

} // namespace

void add_quantized(Table &table) {
    table.quantize = quantize;
    table.quantized_bytes = quantized_bytes;
    table.matmul_quantized = matmul_quantized;
    table.embed_quantized = embed_quantized;
}

} // namespace stasis::kernels::STASIS_REFERENCE
