// Quantizes activations, and looks up embeddings in blocks of integers (C8).
#include "runtime/kernels/cuda/kernels.h"
#include "runtime/kernels/cuda/product.h"
#include "runtime/kernels/cuda/quant.h"

namespace stasis::kernels::device {

namespace {

constexpr unsigned kThreads = 256;

// Returns the integer nearest to x * inverse, the even one of two. Adding 1.5 * 2^23 removes the
// fraction and leaves the integer, below 2^7, in the low bits. A tiny product vanishes in the sum
// whatever its value, so plain operations are enough.
__device__ uint32_t integer_of(uint32_t x, float inverse) {
    const float scaled = mul(bf16_to_f32(static_cast<uint16_t>(x)), inverse);
    return __builtin_bit_cast(uint32_t, add(scaled, 0x1.8p+23F)) & 0xFFU;
}

__device__ uint32_t larger(uint32_t a, uint32_t b) {
    return a < b ? b : a;
}

__device__ uint32_t largest_of(const uint2 &four) {
    return larger(larger(four.x & 0x7FFFU, four.x >> 16 & 0x7FFFU),
                  larger(four.y & 0x7FFFU, four.y >> 16 & 0x7FFFU));
}

// Lanes share a group: each takes 4 of its elements, and in a group of 256 also the 4 that are 128
// later.
template <unsigned kElements> __global__ void quantize_kernel(DeviceQuantize task) {
    wait_for_previous();
    constexpr unsigned kLanes = kElements / 4 < kWarp ? kElements / 4 : kWarp;
    constexpr unsigned kOwn = kElements / 4 / kLanes;
    constexpr uint32_t kInfinity = 0x7F80, kTiny = (127U - 100U) << 7; // 2^-100
    // Threads past the end repeat the last group, because the exchanges need whole warps.
    const Quantized to(task.quantized, task.rows, task.depth, kElements);
    const size_t thread = size_t{blockIdx.x} * kThreads + threadIdx.x, count = to.rows * to.groups;
    const bool there = thread / kLanes < count;
    const size_t at = there ? thread / kLanes : count - 1; // lanes stay together
    const unsigned lane = threadIdx.x % kLanes;
    const size_t row = at / to.groups, group = at % to.groups;
    const auto *from = reinterpret_cast<const uint2 *>(task.x + at * kElements) + lane;
    uint2 x[kOwn];
    uint32_t largest = 0;
#pragma unroll
    for (unsigned i = 0; i < kOwn; ++i) {
        x[i] = from[i * kWarp];
        largest = larger(largest, largest_of(x[i]));
    }
// The largest magnitude of the group.
#pragma unroll
    for (unsigned mask = 1; mask < kLanes; mask *= 2) {
        largest = larger(largest, __shfl_xor_sync(kAllLanes, largest, mask));
    }
    const bool finite = largest < kInfinity, zero = largest < kTiny || !finite;
    // Both are between 2^-107 and 2^121; for a group of zeros neither is used.
    const float a = bf16_to_f32(static_cast<uint16_t>(largest));
    const float scale = div(a, 127.0F), inverse = div(127.0F, a);
    if (there && lane == 0) {
        to.scales[at] = !finite ? __builtin_nanf("") : zero ? 0.0F : scale;
    }
    // Each lane stores its integers, and some lanes the sums of 16 elements.
    auto *integers = reinterpret_cast<uint32_t *>(to.integers);
#pragma unroll
    for (unsigned i = 0; i < kOwn; ++i) {
        uint32_t q = integer_of(x[i].x & 0xFFFFU, inverse);
        q |= integer_of(x[i].x >> 16, inverse) << 8;
        q |= integer_of(x[i].y & 0xFFFFU, inverse) << 16;
        q |= integer_of(x[i].y >> 16, inverse) << 24;
        q = zero ? 0 : q;
        const unsigned word = lane + i * kWarp; // of the group
        int sum = dot_signed(0x01010101U, q, 0);
        sum += __shfl_xor_sync(kAllLanes, sum, 1);
        sum += __shfl_xor_sync(kAllLanes, sum, 2); // of 16 elements
        const int other = __shfl_xor_sync(kAllLanes, sum, 4);
        if (there) {
            integers[to.piece(row, group, word / 4) * 4 + word % 4] = q;
            if (word % 8 == 0) {
                to.sums[at * (kElements / 32) + word / 8] =
                    (static_cast<uint32_t>(sum) & 0xFFFFU) | static_cast<uint32_t>(other) << 16;
            }
        }
    }
}

void quantize(DeviceQueue *queue, const DeviceQuantize &task) {
    const size_t lanes = task.group == 32 ? 8 : kWarp;
    const size_t threads = task.rows * (task.depth / task.group) * lanes;
    enqueue(queue, {static_cast<unsigned>(divide_up(threads, kThreads)), kThreads},
            task.group == 32 ? quantize_kernel<32> : quantize_kernel<256>, task);
}

size_t quantized_bytes(size_t rows, size_t depth, size_t group) {
    return Quantized(nullptr, rows, depth, group).bytes();
}

// Reads one output of a strip's block.
template <Quant kType> struct OneOutput {
    using Type = QuantType<kType>;
    const uint8_t *block;
    unsigned output;

    __device__ uint32_t word(unsigned w) const {
        return reinterpret_cast<const uint32_t *>(block)[w * kStripOutputs + output];
    }
    __device__ float d() const {
        if constexpr (Type::kHasHalf) {
            const uint8_t *halves = block + Type::kShape.words * 4 * kStripOutputs;
            return f16_to_f32(reinterpret_cast<const uint16_t *>(halves)[output]);
        }
        return f16_to_f32(word(0) & 0xFFFFU);
    }
    __device__ float m() const { // with its sign
        const float m = f16_to_f32(word(0) >> 16);
        return Type::kSixBits ? -m : m;
    }
};

// Stores ((d * sc) * n) + (m * mn), times the embedding's scale, for 4 elements. The products are
// exact, and the sum of two normal floats cannot round up to 2^-126 (arithmetic.h).
__device__ void store_four(uint32_t u, int offset, bool is_signed, float step, float minimum,
                           float scale, float *y) {
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) {
        const int byte = is_signed ? signed_byte(u, 8 * k) : static_cast<int>(u >> 8 * k & 0xFFU);
        const float value = add(mul(step, static_cast<float>(byte - offset)), minimum);
        y[k] = c2_mul(value, scale);
    }
}

// Stores word j of both runs of a part.
template <Quant kType>
__device__ void embed_words(const OneOutput<kType> &one, unsigned part, unsigned j, float scale,
                            float *y) {
    using Type = QuantType<kType>;
    uint32_t a, b;
    const unsigned second = Type::second_word(part, j);
    Type::unpack(one.word(Type::word(part, j)), one.word(second), part, j, a, b);
    b >>= Type::kShift;
    const float d = one.d();
    // Without a minimum there is no sum; adding -0 changes no number.
    float steps[2] = {d, d}, minima[2] = {-0.0F, -0.0F};
    if constexpr (Type::kSixBits) {
        uint32_t sc, mn;
        Type::six_bits(one.word(1), one.word(2), one.word(3), part, sc, mn);
        for (unsigned i = 0; i < 2; ++i) {
            steps[i] = mul(d, static_cast<float>(sc >> 8 * i & 0xFFU));
            minima[i] = mul(one.m(), static_cast<float>(mn >> 8 * i & 0xFFU));
        }
    } else if constexpr (Type::kHasMinimum) {
        minima[0] = minima[1] = one.m();
    } else if constexpr (kType == Quant::q6_k) {
        for (unsigned i = 0; i < 2; ++i) {
            const uint32_t sc = one.word(Type::scales_word(part, i == 1));
            steps[i] =
                mul(d, static_cast<float>(signed_byte(sc, Type::scales_bit(part) + j / 4 * 8)));
        }
    }
    store_four(a, Type::kOffset, Type::kSigned, steps[0], minima[0], scale,
               y + Type::first_element(part, false) + 4 * j);
    store_four(b, Type::kOffset, Type::kSigned, steps[1], minima[1], scale,
               y + Type::first_element(part, true) + 4 * j);
}

// One block of threads looks up one row.
__global__ void embed_strips_kernel(DeviceEmbed task) {
    wait_for_previous();
    const size_t token = task.pass.rows[blockIdx.x].token;
    float *stream = task.stream + blockIdx.x * task.hidden;
    with_type(task.quant, [&]<Quant kType>() {
        using Type = QuantType<kType>;
        constexpr unsigned kWords = Type::kSteps * 4, kUnits = kWords * Type::kParts;
        const size_t blocks = task.hidden / Type::kElements;
        const uint8_t *strip = task.strips + token / kStripOutputs * blocks * Type::kShape.bytes;
        for (size_t i = threadIdx.x; i < blocks * kUnits; i += kThreads) {
            const size_t block = i / kUnits;
            const auto unit = static_cast<unsigned>(i % kUnits);
            const OneOutput<kType> one = {strip + block * Type::kShape.bytes,
                                          static_cast<unsigned>(token % kStripOutputs)};
            embed_words<kType>(one, unit / kWords, unit % kWords, task.scale,
                               stream + block * Type::kElements);
        }
    });
}

} // namespace

void embed_strips(DeviceQueue *queue, const DeviceEmbed &task) {
    enqueue(queue, {static_cast<unsigned>(task.pass.row_count), kThreads}, embed_strips_kernel,
            task);
}

void add_quant(DeviceTable &table) {
    table.quantize = quantize;
    table.quantized_bytes = quantized_bytes;
}

} // namespace stasis::kernels::device
