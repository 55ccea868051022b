// See naive_quantized.h.
#include "tests/kernels/naive_quantized.h"

#include <cmath>
#include <limits>

#include "tests/kernels/naive.h"
#include "tests/kernels/soft_float.h"

namespace naive {

namespace {

// `count` bits of a block from bit `at` on, the lowest of byte 0 first.
int bits(const uint8_t *block, size_t at, size_t count) {
    int value = 0;
    for (size_t i = 0; i < count; ++i) {
        value += (block[(at + i) / 8] >> (at + i) % 8 & 1) << i;
    }
    return value;
}

int signed_byte(const uint8_t *block, size_t at) {
    return block[at] < 128 ? block[at] : block[at] - 256;
}

float f16(const uint8_t *block, size_t at) {
    const int fraction = bits(block, 8 * at, 10), exponent = bits(block, 8 * at + 10, 5);
    const float sign = bits(block, 8 * at + 15, 1) != 0 ? -1.0F : 1.0F;
    if (exponent == 0) {
        return sign * std::ldexp(static_cast<float>(fraction), -24);
    }
    return sign * std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
}

// Types of one sub-block: bytes before the nibbles, of which the last four are fifth bits or none.
Weight simple(const uint8_t *block, size_t i, size_t nibbles, bool fifth, int offset, int minimum) {
    int n = bits(block, 8 * (nibbles + i % 16) + 4 * (i / 16), 4);
    if (fifth) {
        n += 16 * bits(block, 8 * (nibbles - 4) + i, 1);
    }
    return {n - offset, 1, minimum};
}

Weight super(const uint8_t *block, size_t i, size_t nibbles, bool fifth) {
    const size_t j = i / 32, l = i % 32, at = 8 * 4;
    int n = bits(block, 8 * (nibbles + 32 * (j / 2) + l) + 4 * (j % 2), 4);
    if (fifth) {
        n += 16 * bits(block, 8 * (16 + l) + j, 1);
    }
    if (j < 4) {
        return {n, bits(block, at + 8 * j, 6), bits(block, at + 8 * (j + 4), 6)};
    }
    return {n, bits(block, at + 8 * (j + 4), 4) + 16 * bits(block, at + 8 * (j - 4) + 6, 2),
            bits(block, at + 8 * (j + 4) + 4, 4) + 16 * bits(block, at + 8 * j + 6, 2)};
}

Weight six(const uint8_t *block, size_t i) {
    const size_t half = i / 128, g = i / 32 % 4, l = i % 32;
    const int low = bits(block, 8 * (64 * half + 32 * (g % 2) + l) + 4 * (g / 2), 4);
    const int high = bits(block, 8 * (128 + 32 * half + l) + 2 * g, 2);
    return {low + 16 * high - 32, signed_byte(block, 192 + i / 16), 0};
}

// Q2_K and Q3_K: two bits of element i of a block whose integers begin at byte `at`.
int two(const uint8_t *block, size_t at, size_t i) {
    return bits(block, 8 * (at + 32 * (i / 128) + i % 32) + 2 * (i / 32 % 4), 2);
}

Weight two_scaled(const uint8_t *block, size_t i) {
    const size_t scale = 8 * (i / 16);
    return {two(block, 16, i), bits(block, scale, 4), bits(block, scale + 4, 4)};
}

Weight three(const uint8_t *block, size_t i) {
    const size_t j = i / 16, at = 8 * 96;
    const int scale = bits(block, at + 8 * (j % 8) + 4 * (j / 8), 4) +
                      16 * bits(block, at + 8 * (8 + j % 4) + 2 * (j / 4), 2);
    return {two(block, 32, i) + 4 * bits(block, 8 * (i % 32) + i / 32, 1) - 4, scale - 32, 0};
}

// Of 32 elements whose nibbles begin at byte `at`: what the i-th stands for.
int looked_up(const int (&values)[16], const uint8_t *block, size_t at, size_t i) {
    return values[bits(block, 8 * (at + i % 16) + 4 * (i / 16), 4)];
}
constexpr int kNonLinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                1,    13,   25,  38,  53,  69,  89,  113};

// Twice a float of a sign, two bits of exponent and one of fraction (E2M1).
int twice_e2m1(int four) {
    const int exponent = four / 2 % 4, fraction = four % 2;
    const int magnitude = exponent == 0 ? fraction : (2 + fraction) << (exponent - 1);
    return four >= 8 ? -magnitude : magnitude;
}

Weight four_scaled(const uint8_t *block, size_t i) {
    const size_t j = i / 32;
    const int scale = bits(block, 8 * 4 + 4 * j, 4) + 16 * bits(block, 8 * 2 + 2 * j, 2);
    return {looked_up(kNonLinear, block, 8 + 16 * j, i % 32), scale - 32, 0};
}

} // namespace

Weight weight(Quant type, const uint8_t *block, size_t i) {
    switch (type) {
    case Quant::q8_0:
        return {signed_byte(block, 2 + i), 1, 0};
    case Quant::q4_0:
        return simple(block, i, 2, false, 8, 0);
    case Quant::q4_1:
        return simple(block, i, 4, false, 0, 1);
    case Quant::q5_0:
        return simple(block, i, 6, true, 16, 0);
    case Quant::q5_1:
        return simple(block, i, 8, true, 0, 1);
    case Quant::q4_k:
        return super(block, i, 16, false);
    case Quant::q5_k:
        return super(block, i, 48, true);
    case Quant::q6_k:
        return six(block, i);
    case Quant::q2_k:
        return two_scaled(block, i);
    case Quant::q3_k:
        return three(block, i);
    case Quant::iq4_nl:
        return {looked_up(kNonLinear, block, 2, i), 1, 0};
    case Quant::iq4_xs:
        return four_scaled(block, i);
    case Quant::mxfp4:
        return {twice_e2m1(bits(block, 8 * (1 + i % 16) + 4 * (i / 16), 4)), 1, 0};
    }
    return {};
}

Scales scales(Quant type, const uint8_t *block) {
    switch (type) {
    case Quant::q6_k:
        return {f16(block, 208), 0.0F, false};
    case Quant::q4_1:
    case Quant::q5_1:
        return {f16(block, 0), f16(block, 2), true};
    case Quant::q4_k:
    case Quant::q5_k:
        return {f16(block, 0), -f16(block, 2), true};
    case Quant::q2_k:
        return {f16(block, 80), -f16(block, 82), true};
    case Quant::q3_k:
        return {f16(block, 108), 0.0F, false};
    case Quant::mxfp4: // a denormal counts as zero
        return {block[0] < 2 ? 0.0F : std::ldexp(1.0F, block[0] - 128), 0.0F, false};
    default:
        return {f16(block, 0), 0.0F, false};
    }
}

void quantize(const uint16_t *x, size_t n, std::vector<int> &q, float &scale) {
    q.assign(n, 0);
    scale = 0.0F;
    float a = 0.0F;
    for (size_t i = 0; i < n; ++i) {
        const float value = std::fabs(from_bf16(x[i]));
        if (!std::isfinite(value)) {
            scale = std::numeric_limits<float>::quiet_NaN();
            return;
        }
        a = std::max(a, value);
    }
    if (a < 0x1p-100F) {
        return;
    }
    scale = soft::div(a, 127.0F);
    const float inverse = soft::div(127.0F, a);
    for (size_t i = 0; i < n; ++i) {
        q[i] = static_cast<int>(std::nearbyint(soft::mul(from_bf16(x[i]), inverse)));
    }
}

void matmul(const QuantizedProduct &task) {
    const auto shape = stasis::kernels::quant_block(task.type);
    const size_t groups = task.depth / shape.elements;
    // Once for all outputs: software floats take their time.
    std::vector<std::vector<int>> q(task.rows * groups);
    std::vector<float> of_group(q.size());
    for (size_t i = 0; i < q.size(); ++i) {
        const uint16_t *x = task.x + i / groups * task.x_stride + i % groups * shape.elements;
        quantize(x, shape.elements, q[i], of_group[i]);
    }
    for (size_t n = 0; n < task.outputs; ++n) {
        std::vector<float> sum(task.rows, 0.0F);
        for (size_t g = 0; g < groups; ++g) {
            const uint8_t *block = task.w + n * task.w_stride + g * shape.bytes;
            const Scales s = scales(task.type, block);
            std::vector<int64_t> integers(task.rows), minima(task.rows);
            for (size_t i = 0; i < shape.elements; ++i) {
                const Weight w = weight(task.type, block, i);
                for (size_t r = 0; r < task.rows; ++r) {
                    integers[r] += int64_t{w.scale} * w.n * q[r * groups + g][i];
                    minima[r] += int64_t{w.minimum} * q[r * groups + g][i];
                }
            }
            for (size_t r = 0; r < task.rows; ++r) {
                const float scale = of_group[r * groups + g];
                sum[r] = soft::fma(static_cast<float>(integers[r]), soft::mul(s.d, scale), sum[r]);
                if (s.has) {
                    sum[r] =
                        soft::fma(static_cast<float>(minima[r]), soft::mul(s.m, scale), sum[r]);
                }
            }
        }
        for (size_t r = 0; r < task.rows; ++r) {
            task.y[r * task.y_stride + n] = sum[r];
        }
    }
}

void embed(Quant type, const uint8_t *row, float scale, size_t n, float *y) {
    const auto shape = stasis::kernels::quant_block(type);
    for (size_t i = 0; i < n; ++i) {
        const uint8_t *block = row + i / shape.elements * shape.bytes;
        const Weight w = weight(type, block, i % shape.elements);
        const Scales s = scales(type, block);
        float value =
            soft::mul(soft::mul(s.d, static_cast<float>(w.scale)), static_cast<float>(w.n));
        if (s.has) {
            value = soft::add(value, soft::mul(s.m, static_cast<float>(w.minimum)));
        }
        y[i] = soft::mul(value, scale);
    }
}

} // namespace naive
