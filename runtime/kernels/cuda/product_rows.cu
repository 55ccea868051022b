// Products of a few rows, as in decoding, whose time is the time to read the weights. A block of
// threads takes a few outputs, whose weights are consecutive in memory as one sequence of rule
// blocks; a lane takes a whole rule block of 64 bytes. The weights stream through a ring in shared
// memory, with 8 KiB of every warp pending and no registers needed. The x of all rows is in shared
// memory too, and so are the sums of the rule blocks, which one thread of each output merges in
// ascending order.
//
// A step of a warp, 2 KiB, takes some 250 instructions for one row (sm_90): 32 fma, 64 unpacks, 8
// wide shared loads, the rest indices and copies. 3 TB/s over 132 multiprocessors are a step in 153
// clocks at 1.7 GHz: 40 % of the issue slots, and as much of shared memory's bandwidth. At a depth
// of 2048 a block takes 38 KiB: 5 are resident with up to 160 KiB pending, where 3 TB/s times 0.8
// us need 18. Estimated, not measured.
#include "runtime/kernels/cuda/kernels.h"
#include "runtime/kernels/cuda/product.h"

namespace stasis::kernels::device {

namespace {

constexpr unsigned kWarps = 4, kThreads = kWarps * kWarp;
constexpr unsigned kSlots = 4; // of a warp's ring; each holds a rule block for every lane
constexpr unsigned kSlotPieces = kWarp * kPieces;
constexpr size_t kRingPieces = size_t{kWarps} * kSlots * kSlotPieces;
constexpr unsigned kLoads = 6;             // loads of x pending for a thread
constexpr unsigned kMostRows = 8;          // rows of a block
constexpr size_t kSharedBytes = 96 * 1024; // less than any supported device gives a block

// Consecutive outputs that a block of threads computes, of one matrix or of two.
struct Work {
    DeviceProduct task;
    unsigned runs[3]; // blocks of threads for each matrix; gated: only the first counts
    unsigned outputs; // of one block of threads, of each matrix
    size_t depth;
    unsigned groups;      // groups of rows
    unsigned rule_blocks; // rule blocks of a row
    uint16_t *gated;      // [rows][outputs] bf16
    Activation activation;
};

// The weights that one block of threads streams: `lines` rows, those of `first`, then of `second`.
struct Run {
    const uint16_t *first, *second;
    unsigned first_lines, lines;
    unsigned total; // rule blocks
};

__device__ const uint16_t *line_of(const Run &run, unsigned line, size_t depth) {
    return line < run.first_lines ? run.first + line * depth
                                  : run.second + (line - run.first_lines) * depth;
}

// `kOnce`: only one row uses the weights, so no other block reads them.
template <bool kOnce> __device__ void copy_weights(void *to, const void *from) {
    if constexpr (kOnce) {
        copy_async_once(to, from);
    } else {
        copy_async(to, from);
    }
}

// Begins to copy the rule blocks 32 * step .. + 31: each lane copies 8 terms of every eighth block.
template <bool kOnce>
__device__ void begin_step(const Work &work, const Run &run, unsigned step, uint4 *slot) {
    constexpr unsigned kStep = kWarp / kPieces;
    const unsigned lane = threadIdx.x % kWarp, piece = lane % kPieces;
    const unsigned first = step * kWarp + lane / kPieces;
    uint4 *to = slot + turned(lane / kPieces, piece);
    if (work.depth % kTerms == 0) { // no gaps between rows
        const unsigned gap = run.first_lines * work.rule_blocks;
#pragma unroll
        for (unsigned i = 0; i < kPieces; ++i) {
            const unsigned at = first + i * kStep;
            const uint16_t *from =
                at < gap ? run.first + size_t{at} * kTerms : run.second + size_t{at - gap} * kTerms;
            if (at < run.total) {
                copy_weights<kOnce>(to + i * kWarp, from + piece * kPieceTerms);
            }
        }
    } else {
#pragma unroll 1
        for (unsigned i = 0; i < kPieces; ++i) {
            const unsigned at = first + i * kStep, line = at / work.rule_blocks;
            const unsigned k = (at - line * work.rule_blocks) * kTerms + piece * kPieceTerms;
            if (at < run.total) {
                copy_piece(to + i * kWarp, line_of(run, line, work.depth), k, work.depth);
            }
        }
    }
    end_copies();
}

// Computes the sums of one rule block for all rows. Piece c of row r is x[(r * 4 + c) * x_stride].
template <unsigned kRows>
__device__ void sum_block(const uint4 *x, unsigned x_stride, const uint4 *slot, unsigned lane,
                          bool careful, float (&sum)[kRows]) {
    if (careful) {
#pragma unroll 1
        for (unsigned r = 0; r < kRows; ++r) {
            const float one = careful_sum(
                [&](unsigned p) {
                    const uint4 *piece = x + (r * kPieces + p / 4) * x_stride;
                    return reinterpret_cast<const uint32_t *>(piece)[p % 4];
                },
                [&](unsigned p) {
                    const uint4 *piece = slot + turned(lane, p / 4);
                    return reinterpret_cast<const uint32_t *>(piece)[p % 4];
                });
#pragma unroll
            for (unsigned i = 0; i < kRows; ++i) { // keeps `sum` in registers
                sum[i] = i == r ? one : sum[i];
            }
        }
        return;
    }

    // The rule has two chains, of even and of odd terms. `w` is loaded once for all rows.
    float even[kRows] = {}, odd[kRows] = {};
#pragma unroll
    for (unsigned c = 0; c < kPieces; ++c) {
        const uint4 w = slot[turned(lane, c)];
#pragma unroll
        for (unsigned r = 0; r < kRows; ++r) {
            const uint4 own = x[(r * kPieces + c) * x_stride];
#pragma unroll
            for (unsigned p = 0; p < 4; ++p) {
                const uint32_t a = pair_of(own, p), b = pair_of(w, p);
                even[r] = fma(first_of(a), first_of(b), even[r]);
                odd[r] = fma(second_of(a), second_of(b), odd[r]);
            }
        }
    }
#pragma unroll
    for (unsigned r = 0; r < kRows; ++r) {
        sum[r] = add(even[r], odd[r]);
    }
}

// Loads x of rows first_row .. into shared memory. Returns whether a term of this thread's is
// unsafe.
template <unsigned kRows>
__device__ bool load_x(const Work &work, size_t first_row, uint32_t span, uint4 *x) {
    const unsigned pieces = work.rule_blocks * kPieces;
    uint32_t unsafe = 0;
    for (unsigned r = 0; r < kRows; ++r) {
        const uint16_t *row = work.task.x + (first_row + r) * work.depth;
        const size_t depth = first_row + r < work.task.rows ? work.depth : 0; // no row: zeros
        const auto keep = [&](unsigned q, const uint4 &piece) {
            x[(r * kPieces + q % kPieces) * work.rule_blocks + q / kPieces] = piece;
            unsafe |= unsafe_terms(piece, span);
        };
        if (work.depth % kPieceTerms != 0) {
            for (unsigned q = threadIdx.x; q < pieces; q += kThreads) {
                keep(q, load_piece(row, size_t{q} * kPieceTerms, depth));
            }
            continue;
        }
        for (unsigned first = threadIdx.x; first < pieces; first += kLoads * kThreads) {
            uint4 own[kLoads]; // loads that are pending together
#pragma unroll
            for (unsigned i = 0; i < kLoads; ++i) {
                const size_t k = size_t{first + i * kThreads} * kPieceTerms;
                own[i] = k < depth ? *reinterpret_cast<const uint4 *>(row + k) : uint4{0, 0, 0, 0};
            }
#pragma unroll
            for (unsigned i = 0; i < kLoads; ++i) {
                if (first + i * kThreads < pieces) {
                    keep(first + i * kThreads, own[i]);
                }
            }
        }
    }
    return (unsafe & kUnsafe) != 0;
}

// Merges sums in ascending order from +0, then adds the bias of the output.
__device__ float merge(const float *sums, unsigned blocks, const DeviceMatrix &w, size_t output) {
    float c = 0.0F;
#pragma unroll 16 // additions wait for each other, loads do not
    for (unsigned b = 0; b < blocks; ++b) {
        c = add(c, sums[b]);
    }
    return w.bias != nullptr ? add(c, w.bias[output]) : c;
}

__device__ uint32_t least_of(const DeviceMatrix &w, size_t first, unsigned count, uint32_t least) {
    for (unsigned n = 0; n < count; ++n) {
        const uint32_t own = w.least[first + n];
        least = own < least ? own : least;
    }
    return least;
}

// Weights begin to stream before the wait; x must come after it.
template <unsigned kRows, bool kGated>
__global__ void __launch_bounds__(kThreads, 5) rows_kernel(const __grid_constant__ Work work) {
    const DeviceProduct &task = work.task;
    // Groups of rows that share weights follow each other: all but one find them in the cache.
    unsigned i = 0, at = blockIdx.x / work.groups;
    while (!kGated && at >= work.runs[i]) {
        at -= work.runs[i++];
    }
    const size_t first = size_t{at} * work.outputs, left = task.w[i].outputs - first;
    const unsigned outputs = left < work.outputs ? static_cast<unsigned>(left) : work.outputs;
    const size_t first_row = size_t{blockIdx.x % work.groups} * kRows;
    const unsigned blocks = work.rule_blocks, lines = kGated ? 2 * outputs : outputs;
    const uint16_t *w = task.w[i].w + first * work.depth;
    const Run run = {w, kGated ? task.w[1].w + first * work.depth : w, outputs, lines,
                     lines * blocks};

    uint4 *ring = dynamic_shared<uint4>() + threadIdx.x / kWarp * (kSlots * kSlotPieces);
    uint4 *x = dynamic_shared<uint4>() + kRingPieces;                      // [rows][4][blocks]
    float *sums = reinterpret_cast<float *>(x + kRows * kPieces * blocks); // [rows][lines][stride]
    const unsigned stride = blocks | 1; // odd, so that merging threads read from different banks
    const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    for (unsigned s = 0; s < kSlots; ++s) { // no work enqueued with this writes weights
        begin_step<kRows == 1>(work, run, warp + s * kWarps, ring + s * kSlotPieces);
    }
    let_next_begin(); // its weights can load meanwhile
    uint32_t least = least_of(task.w[i], first, outputs, kNoExponent);
    least = kGated ? least_of(task.w[1], first, outputs, least) : least;
    wait_for_previous();
    const bool unsafe = load_x<kRows>(work, first_row, unsafe_span(least), x);
    const bool careful = __syncthreads_or(unsafe ? 1 : 0) != 0;

    // Each warp takes every fourth step; a slot is refilled after it was read.
    unsigned turn = 0;
    for (unsigned step = warp; step * kWarp < run.total; step += kWarps) {
        uint4 *slot = ring + turn++ % kSlots * kSlotPieces;
        wait_copies<kSlots - 1>();
        __syncwarp();
        const unsigned block = step * kWarp + lane;
        if (block < run.total) {
            const unsigned line = block / blocks, b = block - line * blocks;
            float sum[kRows] = {};
            sum_block<kRows>(x + b, blocks, slot, lane, careful, sum);
#pragma unroll
            for (unsigned r = 0; r < kRows; ++r) {
                sums[(r * lines + line) * stride + b] = sum[r];
            }
        }
        __syncwarp(); // the slot has been read
        begin_step<kRows == 1>(work, run, step + kSlots * kWarps, slot);
    }

    // One thread merges one output of one row.
    wait_copies<0>();
    __syncthreads();
    const unsigned r = threadIdx.x / outputs, n = threadIdx.x % outputs;
    if (r >= kRows || first_row + r >= task.rows) {
        return;
    }
    const float *own = sums + (r * lines + n) * stride;
    const size_t to = (first_row + r) * task.w[i].outputs + first + n;
    const float value = merge(own, blocks, task.w[i], first + n);
    if constexpr (kGated) {
        const float up = merge(own + outputs * stride, blocks, task.w[1], first + n);
        work.gated[to] = activate(value, up, work.activation);
    } else {
        task.y[i][to] = value;
    }
}

// The rows, and the rows of weights, of a block of threads.
struct Plan {
    unsigned rows = 0, lines = 0;
    size_t shared_bytes = 0;
};

// Plans the fewest row groups, so that weights are read the fewest times. rows = 0: nothing fits.
Plan plan(size_t rows, size_t rule_blocks) {
    unsigned most = 1;
    while (most < rows && most < kMostRows) {
        most *= 2;
    }
    for (; most != 0; most /= 2) {
        for (unsigned lines = 8; lines >= (most == 1 ? 2U : 4U); lines /= 2) {
            const size_t bytes = kRingPieces * sizeof(uint4) +
                                 most * rule_blocks * kTerms * sizeof(uint16_t) +
                                 most * lines * (rule_blocks | 1) * sizeof(float);
            if (bytes <= kSharedBytes) {
                return {most, lines, bytes};
            }
        }
    }
    return {};
}

template <bool kGated> bool enqueue_rows(DeviceQueue *queue, Work work) {
    const DeviceProduct &task = work.task;
    const size_t rule_blocks = divide_up(work.depth, kTerms);
    const Plan chosen = plan(task.rows, rule_blocks);
    if (chosen.rows == 0) {
        return false;
    }
    work.rule_blocks = static_cast<unsigned>(rule_blocks);
    work.outputs = kGated ? chosen.lines / 2 : chosen.lines;
    unsigned runs = 0;
    for (size_t i = 0; i < (kGated ? 1 : task.count); ++i) {
        work.runs[i] = static_cast<unsigned>(divide_up(task.w[i].outputs, work.outputs));
        runs += work.runs[i];
    }
    work.groups = static_cast<unsigned>(divide_up(task.rows, chosen.rows));
    const Launch shape = {dim3(runs * work.groups), kThreads, chosen.shared_bytes};
    const auto kernel = chosen.rows == 1   ? rows_kernel<1, kGated>
                        : chosen.rows == 2 ? rows_kernel<2, kGated>
                        : chosen.rows == 4 ? rows_kernel<4, kGated>
                                           : rows_kernel<8, kGated>;
    enqueue(queue, shape, kernel, work);
    return true;
}

} // namespace

bool few_rows(DeviceQueue *queue, const DeviceProduct &task) {
    Work work = {};
    work.task = task, work.depth = task.w[0].depth;
    return enqueue_rows<false>(queue, work);
}

bool few_rows(DeviceQueue *queue, const DeviceGatedProduct &task) {
    Work work = {};
    work.task.x = task.x, work.task.rows = task.rows, work.depth = task.gate.depth;
    work.task.w[0] = task.gate, work.task.w[1] = task.up;
    work.gated = task.y, work.activation = task.activation;
    return enqueue_rows<true>(queue, work);
}

} // namespace stasis::kernels::device
