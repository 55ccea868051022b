// Products of integer weights with quantized activations (C8), for any number of rows. A block of
// threads takes one strip of 16 outputs (or two, of a gated product) and up to 8 rows. The strip is
// read from front to back in chunks of 32 units through a ring in shared memory, 16 bytes a copy. A
// thread computes one unit of 4 outputs for all rows from the ring, as integers. One thread of each
// row and output then adds the chunk's blocks in order.
//
// For Q4_K, 8 units of a warp are 1152 bytes. Unpacking them takes some 125 logic operations and
// one row 64 dp4a, each in its own pipe and at half rate: 250 clocks of a scheduler, or 18 bytes a
// clock of a multiprocessor, where 3 TB/s over 132 of them at 1.7 GHz are 13. With 8 rows, unpacked
// once, 1024 of some 1600 clocks are dp4a. Estimated, not measured.
#include "runtime/kernels/cuda/kernels.h"
#include "runtime/kernels/cuda/product.h"
#include "runtime/kernels/cuda/quant.h"

namespace stasis::kernels::device {

namespace {

constexpr unsigned kWarps = 4, kThreads = kWarps * kWarp;
constexpr unsigned kUnits = kThreads / 4; // units of a chunk, each of 4 threads with 4 outputs
constexpr unsigned kSlots = 2;            // slots of the ring
constexpr unsigned kOutputs = kStripOutputs;
constexpr unsigned kMostRows = kThreads / kOutputs;

struct Work {
    const void *quantized[2]; // by groups of 32 and of 256
    size_t rows;
    DeviceMatrix w[3];
    float *y[3];
    unsigned strips[3];
    unsigned groups;     // groups of rows
    unsigned group_rows; // rows of a group; the last one may have fewer
    unsigned slot_bytes; // of a slot of the ring
    uint16_t *gated;     // [rows][outputs] bf16, from w[0] and w[1]; null: not gated
    Activation activation;
};

// The results of a chunk's units, [part][block]. In shared memory, followed by one Integers for
// each row of the block of threads, and by the ring.
struct Floats {
    float d[kUnits][kOutputs]; // of each block
    float m[kUnits][kOutputs]; // with its sign
};
struct Integers {                 // of a row
    int sums[kUnits][kOutputs];   // I
    int minima[kUnits][kOutputs]; // M, if it depends on the weights
};
__device__ Floats &floats() {
    return *dynamic_shared<Floats>();
}
__device__ Integers *integers() {
    return reinterpret_cast<Integers *>(dynamic_shared<Floats>() + 1);
}

template <Quant kType> struct Chunk {
    using Type = QuantType<kType>;
    static constexpr unsigned kBlocks = kUnits / Type::kParts;

    // Begins to copy the chunk's blocks from `first` on, up to the last block.
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

// The weights of a unit, for 4 outputs. Scales are shifted so that both runs weigh the same.
template <Quant kType> struct Unit {
    using Type = QuantType<kType>;
    uint32_t a[Type::kSteps * 4][4], b[Type::kSteps * 4][4]; // [word][output]
    int scale_a[Type::kSteps][4], scale_b[Type::kSteps][4];
    uint32_t mn[4]; // mn of a and of b, in the low two bytes

    __device__ Unit(const uint4 *block, unsigned part) {
#pragma unroll
        // Both words of every output, unpacked once for all rows.
        for (unsigned j = 0; j < Type::kSteps * 4; ++j) {
            const uint4 first = block[Type::word(part, j) * 4];
            const uint4 second = block[Type::second_word(part, j) * 4];
#pragma unroll
            for (unsigned o = 0; o < 4; ++o) {
                Type::unpack(pair_of(first, o), pair_of(second, o), part, j, a[j][o], b[j][o]);
            }
        }
        read_scales(block, part);
    }

    __device__ void read_scales(const uint4 *block, unsigned part) {
        // The scales of both runs, for each step; 1 for types without such scales.
        uint4 words[3] = {};
        if constexpr (Type::kSixBits) {
            words[0] = block[4], words[1] = block[8], words[2] = block[12];
        } else if constexpr (kType == Quant::q6_k) {
            words[0] = block[Type::scales_word(part, false) * 4];
            words[1] = block[Type::scales_word(part, true) * 4];
        }
#pragma unroll
        for (unsigned o = 0; o < 4; ++o) {
            const uint32_t w[3] = {pair_of(words[0], o), pair_of(words[1], o),
                                   pair_of(words[2], o)};
            uint32_t sc = 0x0101U;
            if constexpr (Type::kSixBits) {
                Type::six_bits(w[0], w[1], w[2], part, sc, mn[o]);
            }
#pragma unroll
            for (unsigned step = 0; step < Type::kSteps; ++step) {
                const unsigned bit = Type::scales_bit(part) + 8 * step; // of Q6_K
                scale_a[step][o] = kType == Quant::q6_k
                                       ? signed_byte(w[0], bit)
                                       : static_cast<int>((sc & 0xFFU) << Type::kShift);
                scale_b[step][o] = kType == Quant::q6_k ? signed_byte(w[1], bit)
                                                        : static_cast<int>(sc >> 8 & 0xFFU);
            }
        }
    }
};

template <Quant kType> __device__ int dot(uint32_t w, uint32_t x, int c) {
    return QuantType<kType>::kSigned ? dot_signed(w, x, c) : dot_unsigned(w, x, c);
}

// Adds a step of a row, 16 elements of either run, to the sums of 4 outputs. `pieces` and `pairs`
// belong to the row's group.
template <Quant kType>
__device__ void add_step(const Unit<kType> &unit, unsigned part, unsigned step, const uint4 *pieces,
                         const uint32_t *pairs, int (&sums)[4]) {
    using Type = QuantType<kType>;
    const unsigned at_a = Type::first_element(part, false), at_b = Type::first_element(part, true);
    const uint4 xa = pieces[(at_a / 16 + step) * kBundle];
    const uint4 xb = pieces[(at_b / 16 + step) * kBundle];
    int begin_a = 0, begin_b = 0;
    // The offset of u times the sum of the integers is subtracted once for all outputs.
    if constexpr (Type::kOffset != 0) {
        const uint32_t pair_a = pairs[at_a / 32], pair_b = pairs[at_b / 32];
        // In blocks of 32, b uses the other half of the same pair.
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
            dot_a = dot<kType>(unit.a[4 * step + i][o], pair_of(xa, i), dot_a);
            dot_b = dot<kType>(unit.b[4 * step + i][o], pair_of(xb, i), dot_b);
        }
        sums[o] += unit.scale_a[step][o] * dot_a + unit.scale_b[step][o] * dot_b;
    }
}

__device__ void store(int *to, const int (&four)[4]) {
    *reinterpret_cast<uint4 *>(to) = {
        static_cast<uint32_t>(four[0]), static_cast<uint32_t>(four[1]),
        static_cast<uint32_t>(four[2]), static_cast<uint32_t>(four[3])};
}

// Reads d and m of 4 outputs.
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

// Computes this thread's unit of a chunk whose first block is `first`.
template <Quant kType>
__device__ void sum_unit(const Quantized &x, size_t first_row, unsigned rows, size_t first,
                         const uint4 *slot) {
    using Type = QuantType<kType>;
    const unsigned warp = threadIdx.x / kWarp, own = threadIdx.x % kWarp / 4;
    const unsigned quad = threadIdx.x % 4;
    // A warp takes 8 consecutive blocks, of one bundle, and one part of them.
    const unsigned part = Type::kParts == 1 ? 0 : warp;
    const unsigned at = Type::kParts == 1 ? warp * kBundle + own : own;
    if (first + at >= x.groups) {
        return;
    }

    // Unpacks the weights once, then multiplies them with each row.
    const uint4 *block = slot + at * (Type::kShape.bytes / 16) + quad;
    if (part == 0) {
        read_floats<kType>(block, quad, reinterpret_cast<float4 *>(&floats().d[at][quad * 4]),
                           reinterpret_cast<float4 *>(&floats().m[at][quad * 4]));
    }
    const Unit<kType> unit(block, part);
    const uint4 *pieces = x.integers + x.piece(first_row, first + at, 0);
    const uint32_t *pairs =
        x.sums + first_row * x.row_sums() + (first + at) * (Type::kElements / 32);
    Integers *to = integers();
#pragma unroll 1
    for (unsigned r = 0; r < rows; ++r) {
        int four[4] = {};
#pragma unroll
        for (unsigned step = 0; step < Type::kSteps; ++step) {
            add_step(unit, part, step, pieces, pairs, four);
        }
#pragma unroll
        for (unsigned o = 0; o < 4; ++o) {
            four[o] >>= Type::kShift;
        }
        store(&to[r].sums[part * Chunk<kType>::kBlocks + at][quad * 4], four);
        if constexpr (Type::kSixBits) {
            const uint32_t pair_a = pairs[part * 2], pair_b = pairs[part * 2 + 1];
            const int a = first_sum(pair_a) + second_sum(pair_a);
            const int b = first_sum(pair_b) + second_sum(pair_b);
#pragma unroll
            for (unsigned o = 0; o < 4; ++o) {
                four[o] = static_cast<int>(unit.mn[o] & 0xFFU) * a +
                          static_cast<int>(unit.mn[o] >> 8 & 0xFFU) * b;
            }
            store(&to[r].minima[part * Chunk<kType>::kBlocks + at][quad * 4], four);
        }
        pieces += x.row_pieces();
        pairs += x.row_sums();
    }
}

// Merges acc of one row and output with the blocks of a chunk.
//
// Plain operations are enough (arithmetic.h). d * scale: an f16 is a multiple of 2^-24. So the
// product is i * 2^-24 * a / 127, the quotient rounded, for an integer i and a bf16 a of 2^-100 or
// more, s * 2^e with s below 256. It is below 2^-126 only for i below 32. Then i * s / 127, unless
// it is a power of two and nothing is rounded, differs from a power of two by at least 1 / (32 *
// 256) of it, too much to be rounded to 2^-126. The sums: d * scale is then a multiple of 2^-149,
// and so are its product with an integer, and acc.
template <Quant kType>
__device__ float merge(const Quantized &x, size_t row, size_t first, float acc) {
    using Type = QuantType<kType>;
    constexpr unsigned kBlocks = Chunk<kType>::kBlocks;
    const unsigned n = threadIdx.x % kOutputs;
    const Integers &own = integers()[threadIdx.x / kOutputs];
    const float *scales = x.scales + row * x.groups + first;
    const uint32_t *sums = x.sums + row * x.row_sums() + first;
    const size_t left = x.groups - first;
    const unsigned count = left < kBlocks ? static_cast<unsigned>(left) : kBlocks;
#pragma unroll 4
    for (unsigned b = 0; b < count; ++b) {
        int sum = 0, minimum = 0;
#pragma unroll
        for (unsigned part = 0; part < Type::kParts; ++part) {
            sum += own.sums[part * kBlocks + b][n];
            minimum += Type::kSixBits ? own.minima[part * kBlocks + b][n] : 0;
        }
        const float scale = scales[b];
        acc = fma(static_cast<float>(sum), mul(floats().d[b][n], scale), acc);
        if constexpr (Type::kHasMinimum) {
            minimum = Type::kSixBits ? minimum : first_sum(sums[b]) + second_sum(sums[b]);
            acc = fma(static_cast<float>(minimum), mul(floats().m[b][n], scale), acc);
        }
    }
    return acc;
}

// Returns the product of `rows` rows from first_row on and one strip, for row threadIdx.x / 16 and
// output threadIdx.x % 16, if that row exists.
template <Quant kType>
__device__ float stream_strip(const Work &work, const DeviceMatrix &w, size_t strip_index,
                              size_t first_row, unsigned rows) {
    using Type = QuantType<kType>;
    constexpr unsigned kBlocks = Chunk<kType>::kBlocks;
    const Quantized x(const_cast<void *>(work.quantized[Type::kElements == 32 ? 0 : 1]), work.rows,
                      w.depth, Type::kElements);
    const uint8_t *strip = w.strips + strip_index * x.groups * Type::kShape.bytes;
    uint4 *ring = reinterpret_cast<uint4 *>(integers() + work.group_rows);
    const unsigned slot_pieces = work.slot_bytes / sizeof(uint4);
    // The ring holds the next chunks while one is computed.
    for (unsigned s = 0; s < kSlots; ++s) {
        Chunk<kType>::begin(strip, s * kBlocks, x.groups, ring + s * slot_pieces);
    }
    float acc = 0.0F;
    unsigned turn = 0;
#pragma unroll 1
    for (size_t first = 0; first < x.groups; first += kBlocks) {
        uint4 *slot = ring + turn++ % kSlots * slot_pieces;
        wait_copies<kSlots - 1>();
        __syncthreads(); // the slot is complete, and the last chunk's results have been read
        sum_unit<kType>(x, first_row, rows, first, slot);
        __syncthreads();
        Chunk<kType>::begin(strip, first + kSlots * kBlocks, x.groups, slot);
        if (threadIdx.x / kOutputs < rows) {
            acc = merge<kType>(x, first_row + threadIdx.x / kOutputs, first, acc);
        }
    }
    wait_copies<0>();
    return acc;
}

__global__ void __launch_bounds__(kThreads, 3) strips_kernel(const __grid_constant__ Work work) {
    wait_for_previous();
    // Groups of rows that share weights are consecutive, so that all but one find them in the
    // cache.
    unsigned i = 0, at = blockIdx.x / work.groups;
    while (work.gated == nullptr && at >= work.strips[i]) {
        at -= work.strips[i++];
    }
    const size_t first_row = size_t{blockIdx.x % work.groups} * work.group_rows;
    const size_t left = work.rows - first_row;
    const unsigned rows = left < work.group_rows ? static_cast<unsigned>(left) : work.group_rows;
    // A gated product streams two strips, of the gate and of the other matrix.
    const size_t output = size_t{at} * kOutputs + threadIdx.x % kOutputs;
    const bool stored = threadIdx.x / kOutputs < rows && output < work.w[i].outputs;
    float value = 0.0F, gate = 0.0F;
#pragma unroll 1
    for (const unsigned last = work.gated != nullptr ? 1 : i;; ++i) {
        const DeviceMatrix &w = work.w[i];
        with_type(w.quant, [&]<Quant kType>() {
            value = stream_strip<kType>(work, w, at, first_row, rows);
        });
        if (stored && w.bias != nullptr) {
            value = add(value, w.bias[output]);
        }
        if (i == last) {
            break;
        }
        gate = value;
    }
    if (!stored) {
        return;
    }
    const size_t to = (first_row + threadIdx.x / kOutputs) * work.w[i].outputs + output;
    if (work.gated != nullptr) {
        work.gated[to] = activate(gate, value, work.activation);
    } else {
        work.y[i][to] = value;
    }
}

size_t chunk_bytes(Quant type) {
    const size_t parts = quant_block(type).elements == 32 ? 1 : 4;
    return kUnits / parts * strip_block(type).bytes;
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
    work.group_rows = work.rows < kMostRows ? static_cast<unsigned>(work.rows) : kMostRows;
    work.groups = static_cast<unsigned>(divide_up(work.rows, work.group_rows));
    enqueue(queue,
            {dim3(strips * work.groups), kThreads,
             sizeof(Floats) + work.group_rows * sizeof(Integers) + kSlots * work.slot_bytes},
            strips_kernel, work);
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
    work.gated = task.y, work.activation = task.activation;
    enqueue_strips(queue, work, 2);
}

} // namespace stasis::kernels::device
