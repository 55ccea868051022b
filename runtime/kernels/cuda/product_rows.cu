// Products of a few rows, as in decoding, whose time is the time to read the weights. The weights
// of a few outputs, a run, are consecutive in memory as one sequence of rule blocks; a lane takes a
// whole rule block of 64 bytes. As many blocks of threads as are resident share the runs, so that
// none begins late, and x is loaded once by each. The weights stream through a ring in shared
// memory, with 8 KiB of every warp pending and no registers needed. The x of all rows is in shared
// memory too, and so are the sums of the rule blocks, which one thread of each output merges in
// ascending order while the next run streams.
//
// A step of a warp, 2 KiB, takes some 265 instructions for one row (sm_90): 32 fma, 64 unpacks, 8
// wide shared loads, the rest indices and copies. On an H100 gate and up of a 1.1B model (46 MB)
// take 16 us between their neighbours, of which reading takes 15; a block for each run took 23,
// because the last ones began late. Three or five blocks of a multiprocessor, 8 warps, or asking
// for weights ahead of the ring were no faster.
#include "runtime/kernels/cuda/kernels.h"
#include "runtime/kernels/cuda/product.h"

namespace stasis::kernels::device {

namespace {

constexpr unsigned kWarps = 4, kThreads = kWarps * kWarp;
constexpr unsigned kResident = 4; // blocks of a multiprocessor that share the runs
constexpr unsigned kSlots = 4;    // of a warp's ring; each holds a rule block for every lane
constexpr unsigned kSlotPieces = kWarp * kPieces;
constexpr size_t kRingPieces = size_t{kWarps} * kSlots * kSlotPieces;
constexpr unsigned kLoads = 6;             // loads of x pending for a thread
constexpr unsigned kMostRows = 8;          // rows of a block
constexpr size_t kSharedBytes = 96 * 1024; // less than any supported device gives a block

// The launch argument. A run is a few consecutive outputs, of one matrix or of two.
struct Work {
    DeviceProduct task;
    unsigned runs[3]; // of each matrix; gated: only the first counts
    unsigned all_runs;
    unsigned outputs; // of a run, of each matrix
    size_t depth;
    unsigned groups;      // groups of rows
    unsigned rule_blocks; // rule blocks of a row
    unsigned steps;       // of a run
    uint16_t *gated;      // [rows][outputs] bf16
    Activation activation;
};

// The weights of a run: `lines` rows, those of `first`, then of `second`.
struct Run {
    unsigned matrix;
    size_t output; // the first one of the matrix
    const uint16_t *first, *second;
    unsigned first_lines, lines;
    unsigned total; // rule blocks
};

template <bool kGated> __device__ Run run_at(const Work &work, unsigned at) {
    unsigned i = 0;
    while (!kGated && at >= work.runs[i]) {
        at -= work.runs[i++];
    }
    const DeviceProduct &task = work.task;
    const size_t output = size_t{at} * work.outputs, left = task.w[i].outputs - output;
    const unsigned outputs = left < work.outputs ? static_cast<unsigned>(left) : work.outputs;
    const uint16_t *first = task.w[i].w + output * work.depth;
    const unsigned lines = kGated ? 2 * outputs : outputs;
    return {i,
            output,
            first,
            kGated ? task.w[1].w + output * work.depth : first,
            outputs,
            lines,
            lines * work.rule_blocks};
}

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
__device__ void copy_step(const Work &work, const Run &run, unsigned step, uint4 *slot) {
    constexpr unsigned kStep = kWarp / kPieces;
    const unsigned lane = threadIdx.x % kWarp, piece = lane % kPieces;
    const unsigned begin = step * kWarp, first = begin + lane / kPieces;
    uint4 *to = slot + turned(lane / kPieces, piece);
    const bool plain = work.depth % kTerms == 0; // no gaps between rows
    const unsigned gap = run.first_lines * work.rule_blocks;
    if (plain && begin + kWarp <= run.total && (begin + kWarp <= gap || begin >= gap)) {
        const uint16_t *from = begin < gap ? run.first + size_t{first} * kTerms
                                           : run.second + size_t{first - gap} * kTerms;
        from += piece * kPieceTerms;
#pragma unroll
        for (unsigned i = 0; i < kPieces; ++i) {
            copy_weights<kOnce>(to + i * kWarp, from + i * kStep * kTerms);
        }
        return;
    }
#pragma unroll 1
    for (unsigned i = 0; i < kPieces; ++i) {
        const unsigned at = first + i * kStep, line = at / work.rule_blocks;
        const unsigned k = (at - line * work.rule_blocks) * kTerms + piece * kPieceTerms;
        if (at < run.total) {
            copy_piece(to + i * kWarp, line_of(run, line, work.depth), k, work.depth);
        }
    }
}

// A warp's ring, filled in the order of the block's runs, four steps ahead of their use. Steps of
// all runs are dealt to the warps in turn.
template <bool kGated, bool kOnce> struct Ring {
    const Work &work;
    uint4 *slots;
    unsigned run, end; // of the block
    unsigned step;     // of this warp, in the run
    unsigned turn = 0; // the slot that is filled next
    Run there;

    __device__ Ring(const Work &of, uint4 *ring, unsigned begin, unsigned end_run)
        : work(of), slots(ring), run(begin), end(end_run), step(threadIdx.x / kWarp),
          there(run_at<kGated>(of, begin)) {}

    // Begins the next copy, or an empty group if there is none left.
    __device__ void fill() {
        if (step >= work.steps && run < end) {
            do {
                step -= work.steps, ++run;
            } while (step >= work.steps);
            if (run < end) {
                there = run_at<kGated>(work, run);
            }
        }
        if (run < end) {
            copy_step<kOnce>(work, there, step, slots + turn * kSlotPieces);
        }
        end_copies();
        step += kWarps, turn = (turn + 1) % kSlots;
    }
};

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

// Returns the smallest exponent of the weights of runs begin .. end - 1 to all lanes.
template <bool kGated>
__device__ uint32_t least_of(const Work &work, unsigned begin, unsigned end) {
    const unsigned lane = threadIdx.x % kWarp;
    uint32_t least = kNoExponent;
    for (unsigned at = begin * work.outputs + lane; at < end * work.outputs; at += kWarp) {
        const Run run = run_at<kGated>(work, at / work.outputs);
        const unsigned n = at % work.outputs;
        for (unsigned i = run.matrix; n < run.first_lines && i < (kGated ? 2 : run.matrix + 1);
             ++i) {
            const uint32_t own = work.task.w[i].least[run.output + n];
            least = own < least ? own : least;
        }
    }
    return __reduce_min_sync(kAllLanes, least);
}

// One thread merges one output of one row; runs take other warps in turn.
template <unsigned kRows, bool kGated>
__device__ void merge_run(const Work &work, const Run &run, unsigned turn, size_t first_row,
                          const float *sums, unsigned stride) {
    const unsigned own = (threadIdx.x + turn * kWarp) % kThreads, outputs = run.first_lines;
    const unsigned r = own / outputs, n = own % outputs;
    if (r >= kRows || first_row + r >= work.task.rows) {
        return;
    }
    const DeviceMatrix &w = work.task.w[run.matrix];
    const float *line = sums + (r * run.lines + n) * stride;
    const size_t to = (first_row + r) * w.outputs + run.output + n;
    const float value = merge(line, work.rule_blocks, w, run.output + n);
    if constexpr (kGated) {
        const float up =
            merge(line + outputs * stride, work.rule_blocks, work.task.w[1], run.output + n);
        work.gated[to] = activate(value, up, work.activation);
    } else {
        work.task.y[run.matrix][to] = value;
    }
}

// A block computes an equal share of the runs, which are consecutive. Weights begin to stream
// before the wait; x must come after it.
template <unsigned kRows, bool kGated>
__global__ void __launch_bounds__(kThreads, kResident)
    rows_kernel(const __grid_constant__ Work work) {
    // Groups of rows that share weights follow each other: all but one find them in the cache.
    const unsigned count = gridDim.x / work.groups, own = blockIdx.x / work.groups;
    const auto begin = static_cast<unsigned>(uint64_t{work.all_runs} * own / count);
    const auto end = static_cast<unsigned>(uint64_t{work.all_runs} * (own + 1) / count);
    const size_t first_row = size_t{blockIdx.x % work.groups} * kRows;
    const unsigned blocks = work.rule_blocks;
    const unsigned stride = blocks | 1; // odd, so that merging threads read from different banks
    const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    const unsigned most_lines = kGated ? 2 * work.outputs : work.outputs;

    uint4 *slots = dynamic_shared<uint4>() + warp * (kSlots * kSlotPieces);
    uint4 *x = dynamic_shared<uint4>() + kRingPieces; // [rows][4][blocks]
    // [2][rows][lines][stride], for runs in turn
    float *sums = reinterpret_cast<float *>(x + kRows * kPieces * blocks);
    Ring<kGated, kRows == 1> ring(work, slots, begin, end);
    for (unsigned s = 0; s < kSlots; ++s) { // no work enqueued with this writes weights
        ring.fill();
    }
    let_next_begin();
    const uint32_t least = least_of<kGated>(work, begin, end);
    wait_for_previous();
    const bool unsafe = load_x<kRows>(work, first_row, unsafe_span(least), x);
    const bool careful = __syncthreads_or(unsafe ? 1 : 0) != 0;

    // A slot is refilled after it was read. Sums of a run are merged while the next one's are
    // computed, into the other half; the barrier after the next one ends both.
    unsigned step = warp, slot = 0, half = 0;
    for (unsigned at = begin; at < end; ++at, half ^= 1U) {
        const Run run = run_at<kGated>(work, at);
        float *to = sums + half * (kRows * most_lines * stride);
        for (; step < work.steps; step += kWarps) {
            wait_copies<kSlots - 1>();
            __syncwarp();
            const unsigned block = step * kWarp + lane;
            if (block < run.total) {
                const unsigned line = block / blocks, b = block - line * blocks;
                float sum[kRows] = {};
                sum_block<kRows>(x + b, blocks, slots + slot * kSlotPieces, lane, careful, sum);
#pragma unroll
                for (unsigned r = 0; r < kRows; ++r) {
                    to[(r * run.lines + line) * stride + b] = sum[r];
                }
            }
            __syncwarp(); // the slot has been read
            ring.fill();
            slot = (slot + 1) % kSlots;
        }
        step -= work.steps;
        __syncthreads();
        merge_run<kRows, kGated>(work, run, at, first_row, to, stride);
    }
    wait_copies<0>();
}

// The rows, and the rows of weights, of a block of threads.
struct Plan {
    unsigned rows = 0, lines = 0;
    size_t shared_bytes = 0;
};

// Returns the dynamic shared memory of a block.
size_t shared_bytes(size_t rows, size_t lines, size_t rule_blocks) {
    return kRingPieces * sizeof(uint4) + rows * rule_blocks * kTerms * sizeof(uint16_t) +
           2 * rows * lines * (rule_blocks | 1) * sizeof(float);
}

// Plans the fewest row groups, so that weights are read the fewest times. rows = 0: nothing fits.
Plan plan(size_t rows, size_t rule_blocks) {
    unsigned most = 1;
    while (most < rows && most < kMostRows) {
        most *= 2;
    }
    for (; most != 0; most /= 2) {
        for (unsigned lines = 8; lines >= (most == 1 ? 2U : 4U); lines /= 2) {
            const size_t bytes = shared_bytes(most, lines, rule_blocks);
            if (bytes <= kSharedBytes) {
                return {most, lines, bytes};
            }
        }
    }
    return {};
}

unsigned count_runs(const DeviceProduct &task, size_t count, unsigned outputs, unsigned *runs) {
    unsigned all = 0;
    for (size_t i = 0; i < count; ++i) {
        runs[i] = static_cast<unsigned>(divide_up(task.w[i].outputs, outputs));
        all += runs[i];
    }
    return all;
}

template <bool kGated> bool enqueue_rows(DeviceQueue *queue, Work work) {
    const DeviceProduct &task = work.task;
    const size_t rule_blocks = divide_up(work.depth, kTerms), count = kGated ? 1 : task.count;
    Plan chosen = plan(task.rows, rule_blocks);
    if (chosen.rows == 0) {
        return false;
    }
    work.rule_blocks = static_cast<unsigned>(rule_blocks);
    work.groups = static_cast<unsigned>(divide_up(task.rows, chosen.rows));
    // Few runs are halved, so that shares differ by less.
    const unsigned resident = multiprocessors(queue) * kResident;
    work.outputs = kGated ? chosen.lines / 2 : chosen.lines;
    work.all_runs = count_runs(task, count, work.outputs, work.runs);
    if (work.all_runs < 2 * resident && chosen.lines == 8) {
        work.outputs /= 2, chosen.lines /= 2;
        work.all_runs = count_runs(task, count, work.outputs, work.runs);
    }
    work.steps = static_cast<unsigned>(divide_up(chosen.lines * rule_blocks, kWarp));
    unsigned blocks = resident / work.groups == 0 ? 1 : resident / work.groups;
    blocks = blocks < work.all_runs ? blocks : work.all_runs;
    const Launch shape = {dim3(blocks * work.groups), kThreads,
                          shared_bytes(chosen.rows, chosen.lines, rule_blocks)};
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
