// Products of integer weights with quantized activations (C8), for any number of rows. A block of
// threads takes one strip of 16 outputs (or two, of a gated product) and up to 8 rows. The strip
// lies in memory from front to back and comes in chunks of 32 units through a ring in shared
// memory, 16 bytes a copy; a thread computes one unit of 4 outputs for all rows from there, as
// integers, and one thread of each row and output then adds the chunk's blocks in their order.
//
// Of a warp's instructions for a step of its 8 units and one row (Q4_K): 32 dp4a, which go at half
// rate, 32 to unpack, 8 to scale, 6 wide loads. Streaming 3 TB/s over 132 multiprocessors at 1.7
// GHz takes some two thirds of what those can issue; with 8 rows, unpacked once, two thirds of the
// time are dp4a. Reckoned, not measured.
#include "runtime/kernels/cuda/kernels.h"
#include "runtime/kernels/cuda/product.h"
#include "runtime/kernels/cuda/quant.h"

namespace stasis::kernels::device {

namespace {

constexpr unsigned kWarps = 4, kThreads = kWarps * kWarp;
constexpr unsigned kUnits = kThreads / 4; // of a chunk, each of 4 threads with 4 outputs
constexpr unsigned kSlots = 2;            // of the ring
constexpr unsigned kOutputs = kStripOutputs;
constexpr unsigned kMostRows = kThreads / kOutputs;

struct Work {
    const void *quantized[2]; // by groups of 32 and of 256
    size_t rows;
    DeviceMatrix w[3];
    float *y[3];
    unsigned strips[3];
    unsigned groups;     // of rows
    unsigned slot_bytes; // of the ring
    uint16_t *gated;     // [rows][outputs] bf16: of w[0] and w[1]; null: not gated
    bool gelu;
};

// What the units of a chunk come to: units are [part][block].
template <unsigned kRows> struct Numbers {
    int sums[kRows][kUnits][kOutputs];   // I
    int minima[kRows][kUnits][kOutputs]; // M, where that depends on the weights
    float d[kUnits][kOutputs];           // of each block
    float m[kUnits][kOutputs];           // with its sign
};

template <Quant kType> struct Chunk {
    using Type = QuantType<kType>;
    static constexpr unsigned kBlocks = kUnits / Type::kParts;

    // Begins to copy the chunk's blocks from this one on, as many as there are.
    __device__ static void begin(const uint8_t *strip, size_t first, size_t blocks, uint4 *slot) {
        if (first < blocks) {
            const size_t left = blocks - first;
            const size_t pieces = (left < kBlocks ? left : kBlocks) * Type::kShape.bytes / 16;
            const auto *from = reinterpret_cast<const uint4 *>(strip + first * Type::kShape.bytes);
            for (size_t i = threadIdx.x; i < pieces; i += kThreads) {
                copy_async(slot + i, from + i);
            }
        }
        end_copies();
    }
};

// The 4 outputs of a unit.
struct FourInts {
    int of[4];
};

// Scales of a unit's runs: sc and mn, and -kOffset for the sums of its integers.
struct UnitScales {
    FourInts a, b; // shifted so that both runs count alike
    uint32_t mn[4];
};

template <Quant kType>
__device__ void read_scales(const uint4 *block, unsigned part, UnitScales &scales) {
    using Type = QuantType<kType>;
    if constexpr (Type::kSixBits) {
        const uint4 w1 = block[4], w2 = block[8], w3 = block[12];
#pragma unroll
        for (unsigned o = 0; o < 4; ++o) {
            uint32_t sc;
            Type::six_bits(pair_of(w1, o), pair_of(w2, o), pair_of(w3, o), part, sc, scales.mn[o]);
            scales.a.of[o] = static_cast<int>((sc & 0xFFU) << Type::kShift);
            scales.b.of[o] = static_cast<int>(sc >> 8 & 0xFFU);
        }
    } else {
#pragma unroll
        for (unsigned o = 0; o < 4; ++o) {
            scales.a.of[o] = 1 << Type::kShift;
            scales.b.of[o] = 1;
        }
    }
}

// Q6_K: other scales for each step.
template <Quant kType>
__device__ void read_step_scales(const uint4 *block, unsigned part, unsigned step,
                                 UnitScales &scales) {
    using Type = QuantType<kType>;
    if constexpr (kType == Quant::q6_k) {
        const uint4 a = block[Type::scales_word(part, false) * 4];
        const uint4 b = block[Type::scales_word(part, true) * 4];
        const unsigned bit = Type::scales_bit(part) + 8 * step;
#pragma unroll
        for (unsigned o = 0; o < 4; ++o) {
            scales.a.of[o] = signed_byte(pair_of(a, o), bit);
            scales.b.of[o] = signed_byte(pair_of(b, o), bit);
        }
    }
}

template <Quant kType> __device__ int dot(uint32_t w, uint32_t x, int c) {
    return QuantType<kType>::kSigned ? dot_signed(w, x, c) : dot_unsigned(w, x, c);
}

// Where a unit's activations lie: of row r, `row_pieces` and `row_sums` apart.
struct UnitRows {
    const uint4 *integers; // piece 0 of the group
    const uint32_t *sums;  // of the group
    unsigned row_pieces, row_sums;
    unsigned last; // row: rows that do not exist get what it has, as nobody looks at their sums

    __device__ const uint4 *pieces(unsigned r) const {
        return integers + (r < last ? r : last) * row_pieces;
    }
    __device__ uint32_t sum(unsigned r, unsigned element) const {
        return sums[(r < last ? r : last) * row_sums + element / 32];
    }
};

// Adds a step, 16 elements of either run, to the sums of 4 outputs and all rows.
template <Quant kType, unsigned kRows>
__device__ void add_step(const uint4 *block, unsigned part, unsigned step, const UnitRows &x,
                         const UnitScales &scales, FourInts (&sums)[kRows]) {
    using Type = QuantType<kType>;
    uint32_t a[4][4], b[4][4]; // [word][output]
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
        const unsigned j = 4 * step + i;
        const uint4 first = block[Type::word(part, j) * 4];
        const uint4 second = block[Type::second_word(part, j) * 4];
#pragma unroll
        for (unsigned o = 0; o < 4; ++o) {
            Type::unpack(pair_of(first, o), pair_of(second, o), part, j, a[i][o], b[i][o]);
        }
    }
    const unsigned at_a = Type::first_element(part, false), at_b = Type::first_element(part, true);
#pragma unroll
    for (unsigned r = 0; r < kRows; ++r) {
        const uint4 *pieces = x.pieces(r);
        const uint4 xa = pieces[(at_a / 16 + step) * kBundle];
        const uint4 xb = pieces[(at_b / 16 + step) * kBundle];
        int begin_a = 0, begin_b = 0;
        if constexpr (Type::kOffset != 0) {
            const uint32_t pair_a = x.sum(r, at_a), pair_b = x.sum(r, at_b);
            // Of blocks of 32, b is the other half of one pair.
            begin_a = step == 0 ? first_sum(pair_a) : second_sum(pair_a);
            begin_b = step == 0 && Type::kElements != 32 ? first_sum(pair_b) : second_sum(pair_b);
            begin_a *= -Type::kOffset;
            begin_b *= -(Type::kOffset << Type::kShift);
        }
#pragma unroll
        for (unsigned o = 0; o < 4; ++o) {
            int dot_a = begin_a, dot_b = begin_b;
#pragma unroll
            for (unsigned i = 0; i < 4; ++i) {
                dot_a = dot<kType>(a[i][o], pair_of(xa, i), dot_a);
                dot_b = dot<kType>(b[i][o], pair_of(xb, i), dot_b);
            }
            sums[r].of[o] += scales.a.of[o] * dot_a + scales.b.of[o] * dot_b;
        }
    }
}

// d and m of 4 outputs.
template <Quant kType>
__device__ void read_floats(const uint4 *block, unsigned quad, float4 *d, float4 *m) {
    using Type = QuantType<kType>;
    if constexpr (Type::kHasHalf) {
        const auto *halves = reinterpret_cast<const uint2 *>(block - quad + Type::kShape.words * 4);
        const uint2 four = halves[quad];
        *d = {f16_to_f32(four.x & 0xFFFFU), f16_to_f32(four.x >> 16), f16_to_f32(four.y & 0xFFFFU),
              f16_to_f32(four.y >> 16)};
    } else {
        const uint4 four = block[0];
        constexpr uint32_t kSign = Type::kSixBits ? 0x8000U : 0;
        *d = {f16_to_f32(four.x & 0xFFFFU), f16_to_f32(four.y & 0xFFFFU),
              f16_to_f32(four.z & 0xFFFFU), f16_to_f32(four.w & 0xFFFFU)};
        *m = {f16_to_f32(four.x >> 16 ^ kSign), f16_to_f32(four.y >> 16 ^ kSign),
              f16_to_f32(four.z >> 16 ^ kSign), f16_to_f32(four.w >> 16 ^ kSign)};
    }
}

// This thread's unit of a chunk whose first block is `first`.
template <Quant kType, unsigned kRows>
__device__ void sum_unit(const Quantized &x, size_t first_row, size_t first, const uint4 *slot,
                         Numbers<kRows> &numbers) {
    using Type = QuantType<kType>;
    const unsigned warp = threadIdx.x / kWarp, own = threadIdx.x % kWarp / 4;
    const unsigned quad = threadIdx.x % 4;
    // A warp takes 8 blocks side by side, of a bundle, and one part of them.
    const unsigned part = Type::kParts == 1 ? 0 : warp;
    const unsigned at = Type::kParts == 1 ? warp * kBundle + own : own;
    if (first + at >= x.groups) {
        return;
    }
    const size_t group = first + at, left = x.rows - first_row;
    const UnitRows rows = {x.integers + x.piece(first_row, group, 0),
                           x.sums + first_row * x.row_sums() + group * (Type::kElements / 32),
                           static_cast<unsigned>(x.row_pieces()),
                           static_cast<unsigned>(x.row_sums()),
                           left < kRows ? static_cast<unsigned>(left) - 1 : kRows - 1};
    const uint4 *block = slot + at * (Type::kShape.bytes / 16) + quad;
    UnitScales scales = {};
    read_scales<kType>(block, part, scales);
    FourInts sums[kRows] = {};
#pragma unroll 1
    for (unsigned step = 0; step < Type::kSteps; ++step) {
        read_step_scales<kType>(block, part, step, scales);
        add_step<kType, kRows>(block, part, step, rows, scales, sums);
    }
    const unsigned unit = part * Chunk<kType>::kBlocks + at;
#pragma unroll
    for (unsigned r = 0; r < kRows; ++r) {
        *reinterpret_cast<uint4 *>(&numbers.sums[r][unit][quad * 4]) = {
            static_cast<uint32_t>(sums[r].of[0] >> Type::kShift),
            static_cast<uint32_t>(sums[r].of[1] >> Type::kShift),
            static_cast<uint32_t>(sums[r].of[2] >> Type::kShift),
            static_cast<uint32_t>(sums[r].of[3] >> Type::kShift)};
        if constexpr (Type::kSixBits) {
            const uint32_t pair_a = rows.sum(r, part * 64), pair_b = rows.sum(r, part * 64 + 32);
            const int a = first_sum(pair_a) + second_sum(pair_a);
            const int b = first_sum(pair_b) + second_sum(pair_b);
#pragma unroll
            for (unsigned o = 0; o < 4; ++o) {
                numbers.minima[r][unit][quad * 4 + o] =
                    static_cast<int>(scales.mn[o] & 0xFFU) * a +
                    static_cast<int>(scales.mn[o] >> 8 & 0xFFU) * b;
            }
        }
    }
    if (part == 0) {
        read_floats<kType>(block, quad, reinterpret_cast<float4 *>(&numbers.d[at][quad * 4]),
                           reinterpret_cast<float4 *>(&numbers.m[at][quad * 4]));
    }
}

// acc of one row and output, through the blocks of a chunk.
//
// Plain operations are enough (arithmetic.h). d * scale: an f16 is a multiple of 2^-24, so that the
// product is i * 2^-24 * a / 127, the quotient rounded, for an integer i and a bf16 a of 2^-100 or
// more, s * 2^e with s below 256. It is below 2^-126 only for i below 32; and then i * s / 127,
// unless it is a power of two and nothing is rounded, lies at least 1 / (32 * 256) away from one,
// relatively: too far to be rounded to 2^-126. The sums: d * scale is a multiple of 2^-149 then,
// and so is its product with an integer, and acc.
template <Quant kType, unsigned kRows>
__device__ float merge(const Quantized &x, size_t row, size_t first, const Numbers<kRows> &numbers,
                       float acc) {
    using Type = QuantType<kType>;
    constexpr unsigned kBlocks = Chunk<kType>::kBlocks;
    const unsigned r = threadIdx.x / kOutputs, n = threadIdx.x % kOutputs;
    const float *scales = x.scales + row * x.groups + first;
    const uint32_t *sums = x.sums + row * x.row_sums() + first;
    const size_t left = x.groups - first;
    const unsigned count = left < kBlocks ? static_cast<unsigned>(left) : kBlocks;
#pragma unroll 4
    for (unsigned b = 0; b < count; ++b) {
        int sum = 0, minimum = 0;
#pragma unroll
        for (unsigned part = 0; part < Type::kParts; ++part) {
            sum += numbers.sums[r][part * kBlocks + b][n];
            minimum += Type::kSixBits ? numbers.minima[r][part * kBlocks + b][n] : 0;
        }
        const float scale = scales[b];
        acc = fma(static_cast<float>(sum), mul(numbers.d[b][n], scale), acc);
        if constexpr (Type::kHasMinimum) {
            minimum = Type::kSixBits ? minimum : first_sum(sums[b]) + second_sum(sums[b]);
            acc = fma(static_cast<float>(minimum), mul(numbers.m[b][n], scale), acc);
        }
    }
    return acc;
}

// The product of the rows from first_row on and one strip: of row threadIdx.x / 16 and output
// threadIdx.x % 16 of them, where there is such a row.
template <Quant kType, unsigned kRows>
__device__ float stream_strip(const Work &work, const DeviceMatrix &w, size_t strip_index,
                              size_t first_row) {
    using Type = QuantType<kType>;
    constexpr unsigned kBlocks = Chunk<kType>::kBlocks;
    const Quantized x(const_cast<void *>(work.quantized[Type::kElements == 32 ? 0 : 1]), work.rows,
                      w.depth, Type::kElements);
    const uint8_t *strip = w.strips + strip_index * x.groups * Type::kShape.bytes;
    auto &numbers = *dynamic_shared<Numbers<kRows>>();
    uint4 *ring = dynamic_shared<uint4>() + sizeof(Numbers<kRows>) / sizeof(uint4);
    const unsigned slot_pieces = work.slot_bytes / sizeof(uint4);
    const size_t row = first_row + threadIdx.x / kOutputs;
    const bool merges = threadIdx.x / kOutputs < kRows && row < work.rows;
    for (unsigned s = 0; s < kSlots; ++s) {
        Chunk<kType>::begin(strip, s * kBlocks, x.groups, ring + s * slot_pieces);
    }
    float acc = 0.0F;
    unsigned turn = 0;
#pragma unroll 1
    for (size_t first = 0; first < x.groups; first += kBlocks) {
        uint4 *slot = ring + turn++ % kSlots * slot_pieces;
        wait_copies<kSlots - 1>();
        __syncthreads(); // the slot is there, and what the last chunk came to has been read
        sum_unit<kType, kRows>(x, first_row, first, slot, numbers);
        __syncthreads();
        Chunk<kType>::begin(strip, first + kSlots * kBlocks, x.groups, slot);
        if (merges) {
            acc = merge<kType, kRows>(x, row, first, numbers, acc);
        }
    }
    wait_copies<0>();
    return acc;
}

// Blocks of threads that a multiprocessor holds, so that registers are enough for the rows.
constexpr unsigned resident(unsigned rows) {
    return rows == 1 ? 5 : rows == 2 ? 4 : rows == 4 ? 3 : 2;
}

template <unsigned kRows>
__global__ void __launch_bounds__(kThreads, resident(kRows))
    strips_kernel(const __grid_constant__ Work work) {
    // Groups of rows that share weights follow each other: all but one find them in the cache.
    unsigned i = 0, at = blockIdx.x / work.groups;
    while (work.gated == nullptr && at >= work.strips[i]) {
        at -= work.strips[i++];
    }
    const size_t first_row = size_t{blockIdx.x % work.groups} * kRows;
    const size_t row = first_row + threadIdx.x / kOutputs;
    const size_t output = size_t{at} * kOutputs + threadIdx.x % kOutputs;
    const bool stored =
        threadIdx.x / kOutputs < kRows && row < work.rows && output < work.w[i].outputs;
    float values[2] = {}; // the last one first
#pragma unroll 1
    for (unsigned last = work.gated != nullptr ? i + 1 : i; i <= last; ++i) {
        const DeviceMatrix &w = work.w[i];
        values[1] = values[0];
        with_type(w.quant, [&]<Quant kType>() {
            values[0] = stream_strip<kType, kRows>(work, w, at, first_row);
        });
        if (stored && w.bias != nullptr) {
            values[0] = add(values[0], w.bias[output]);
        }
    }
    if (!stored) {
        return;
    }
    const size_t to = row * work.w[i - 1].outputs + output;
    if (work.gated != nullptr) {
        work.gated[to] = activate(values[1], values[0], work.gelu);
    } else {
        work.y[i - 1][to] = values[0];
    }
}

size_t chunk_bytes(Quant type) {
    const size_t parts = quant_block(type).elements == 32 ? 1 : 4;
    return kUnits / parts * strip_block(type).bytes;
}

template <unsigned kRows> void enqueue_rows(DeviceQueue *queue, Work work, unsigned strips) {
    work.groups = static_cast<unsigned>(divide_up(work.rows, kRows));
    enqueue(
        queue,
        {dim3(strips * work.groups), kThreads, sizeof(Numbers<kRows>) + kSlots * work.slot_bytes},
        strips_kernel<kRows>, work);
}

void enqueue_strips(DeviceQueue *queue, Work work, size_t count) {
    unsigned strips = 0;
    for (size_t i = 0; i < count; ++i) {
        work.strips[i] = static_cast<unsigned>(divide_up(work.w[i].outputs, kOutputs));
        strips += work.strips[i];
        const size_t bytes = chunk_bytes(work.w[i].quant);
        work.slot_bytes = bytes > work.slot_bytes ? static_cast<unsigned>(bytes) : work.slot_bytes;
    }
    strips = work.gated != nullptr ? work.strips[0] : strips;
    if (work.rows == 1) {
        enqueue_rows<1>(queue, work, strips);
    } else if (work.rows == 2) {
        enqueue_rows<2>(queue, work, strips);
    } else if (work.rows <= 4) {
        enqueue_rows<4>(queue, work, strips);
    } else {
        enqueue_rows<kMostRows>(queue, work, strips);
    }
}

} // namespace

void integer_products(DeviceQueue *queue, const DeviceProduct &task) {
    Work work = {};
    work.quantized[0] = task.quantized[0], work.quantized[1] = task.quantized[1];
    work.rows = task.rows;
    for (size_t i = 0; i < task.count; ++i) {
        work.w[i] = task.w[i], work.y[i] = task.y[i];
    }
    enqueue_strips(queue, work, task.count);
}

void integer_products(DeviceQueue *queue, const DeviceGatedProduct &task) {
    Work work = {};
    work.quantized[0] = task.quantized[0], work.quantized[1] = task.quantized[1];
    work.rows = task.rows;
    work.w[0] = task.gate, work.w[1] = task.up;
    work.gated = task.y, work.gelu = task.gelu;
    enqueue_strips(queue, work, 2);
}

} // namespace stasis::kernels::device
