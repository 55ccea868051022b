// Products of many rows, as in prefill, whose time is the time of arithmetic. A block of threads
// computes a tile of 32 rows and 64 outputs. Its 4 warps take rule blocks in turn, which are
// independent. Each computes the whole tile, 8 x 8 outputs a lane, from terms that it copied itself
// one rule block ahead and has widened in shared memory. It then adds its sums to c, in shared
// memory, when the warp of the rule block before has: warps wait for that turn only, and not for
// each other. So the three accumulators of an output are never in one thread's registers together,
// and even 128 rows of 2048 outputs make 128 blocks.
//
// Instructions of a warp for a rule block of the tile (sm_90): 2048 fma, 128 wide shared loads of
// terms, 128 adds, 32 wide loads and stores of c, 290 to widen the terms and to test x, the rest
// copies and loops: 2840. Two warps of each of the four schedulers are resident, which issue in 78
// % of all clocks. On an H200 (the arithmetic of an H100) 512 rows of a 1.1B model take 651 us for
// 2 x 5632 outputs of depth 2048, 36.3 TFLOP/s, where 63.8 is what fma alone reach.
#include "runtime/kernels/cuda/kernels.h"
#include "runtime/kernels/cuda/product.h"

namespace stasis::kernels::device {

namespace {

constexpr unsigned kWarps = 4, kThreads = kWarps * kWarp;
constexpr unsigned kEdge = 8;                       // edge of a lane's square of outputs
constexpr unsigned kRowLanes = 4, kColumnLanes = 8; // lanes of a warp
constexpr unsigned kRows = kRowLanes * kEdge, kColumns = kColumnLanes * kEdge;
constexpr unsigned kQuads = kEdge * kEdge / 4; // quads of a lane's sums

// A lane has rows 4 row_of_lane() + i % 4 + 16 (i / 4) and outputs 4 column_of_lane() + j % 4 +
// 32 (j / 4), for i and j below 8. Lanes that differ in bit 1 read the same x, lanes that differ in
// bit 0 the same weights, so that shared memory provides half a warp at once.
__device__ unsigned row_of_lane() {
    return (threadIdx.x & 1U) | (threadIdx.x >> 3 & 2U);
}
__device__ unsigned column_of_lane() {
    return threadIdx.x >> 1 & 7U;
}
__device__ unsigned row_at(unsigned i) {
    return 4 * row_of_lane() + i % 4 + kRowLanes * 4 * (i / 4);
}
__device__ unsigned column_at(unsigned j) {
    return 4 * column_of_lane() + j % 4 + kColumnLanes * 4 * (j / 4);
}

// What a warp needs for a rule block: its terms as they were copied, and widened, with the terms of
// all rows or outputs side by side.
struct Terms {
    uint4 copied_x[kRows * kPieces], copied_w[kColumns * kPieces]; // pieces permuted
    float x[kTerms][kRows], w[kTerms][kColumns];
};

struct Shared {
    Terms terms[kWarps];
    float4 c[kQuads][kWarp]; // a lane's element (i, j) is component j % 4 of 2 i + j / 4
};

// The tile that a block of threads computes.
struct Tile {
    const uint16_t *x, *w; // of its first row and output
    size_t depth;
    unsigned rows, columns; // rows and columns that exist
};

// The launch argument: the product, the tiles of 32 rows, and the tiles of 64 outputs of each
// matrix.
struct Tiles {
    DeviceProduct task;
    unsigned down;
    unsigned across[3];
};

// Copies 8 terms of each line a lane, from term k on: lines lane / 4, + 8, ... A line that does not
// exist gets another's terms, because its sums are not used; terms past the depth are +0.
template <unsigned kLines>
__device__ void copy_lines(const uint16_t *from, unsigned lines, size_t depth, size_t k,
                           uint4 *to) {
    constexpr unsigned kStep =
        kWarp / kPieces; // a multiple of 8, so that pieces are permuted alike
    const unsigned line = threadIdx.x % kWarp / kPieces;
    to += turned(line, threadIdx.x % kPieces);
    if (depth % kPieceTerms == 0 && k < depth && lines == kLines) {
        const uint16_t *row = from + line * depth + k;
#pragma unroll
        for (unsigned i = 0; i < kLines / kStep; ++i) {
            copy_async(to + i * kWarp, row);
            row += kStep * depth;
        }
        return;
    }
#pragma unroll 1
    for (unsigned i = 0; i < kLines / kStep; ++i) {
        const unsigned own = line + i * kStep < lines ? line + i * kStep : lines - 1;
        copy_piece(to + i * kWarp, from + own * depth, k, depth);
    }
}

__device__ void begin_block(const Tile &tile, size_t block, Terms &terms) {
    const size_t k = block * kTerms + threadIdx.x % kPieces * kPieceTerms;
    copy_lines<kRows>(tile.x, tile.rows, tile.depth, k, terms.copied_x);
    copy_lines<kColumns>(tile.w, tile.columns, tile.depth, k, terms.copied_w);
}

// Widens a piece of a line; `to` is its first term, and the next is kLines further.
template <unsigned kLines> __device__ void widen(uint4 piece, float *to) {
#pragma unroll
    for (unsigned p = 0; p < kPieces; ++p) {
        to[2 * p * kLines] = first_of(pair_of(piece, p));
        to[(2 * p + 1) * kLines] = second_of(pair_of(piece, p));
    }
}

// Widens the terms of the lines lane, + 32, ... Returns whether the plain fma is not enough.
__device__ bool widen(Terms &terms, uint32_t span) {
    const unsigned lane = threadIdx.x % kWarp;
    uint32_t unsafe = 0;
#pragma unroll
    for (unsigned piece = 0; piece < kPieces; ++piece) {
        const unsigned at = turned(lane, piece);
        const uint4 x = terms.copied_x[at];
        unsafe |= unsafe_terms(x, span);
        widen<kRows>(x, &terms.x[piece * kPieceTerms][lane]);
#pragma unroll
        for (unsigned i = 0; i < kColumns / kWarp; ++i) {
            widen<kColumns>(terms.copied_w[at + i * kWarp * kPieces],
                            &terms.w[piece * kPieceTerms][lane + i * kWarp]);
        }
    }
    return __shfl_sync(kAllLanes, __any_sync(kAllLanes, (unsafe & kUnsafe) != 0), 0) != 0;
}

// One term of a lane's rows or outputs.
struct Line {
    float at[kEdge];
};
// kFurther: numbers between the fourth and the fifth.
template <unsigned kFurther> __device__ Line line_at(const float *from) {
    const float4 a = *reinterpret_cast<const float4 *>(from);
    const float4 b = *reinterpret_cast<const float4 *>(from + kFurther);
    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

// Multiplies a term of all rows with that of all outputs. kFirst: the chains begin. A
// multiprocessor of compute capability 9.0 reads two registers a clock for an instruction of this
// rate, one from each of two banks, and so the third operand has to be one that the instruction
// before read as well. This order, back and forth, provides that.
template <bool kFirst>
__device__ void multiply(const Line &x, const Line &w, float (&chains)[kEdge][kEdge]) {
#pragma unroll
    for (unsigned j = 0; j < kEdge; ++j) {
#pragma unroll
        for (unsigned n = 0; n < kEdge; ++n) {
            const unsigned i = j % 2 == 0 ? n : kEdge - 1 - n;
            chains[i][j] = fma(x.at[i], w.at[j], kFirst ? 0.0F : chains[i][j]);
        }
    }
}

// Sums a rule block. Terms are loaded into registers two ahead.
__device__ void sum_block(const Terms &terms, float4 (&sums)[kQuads]) {
    constexpr unsigned kRowsFurther = kRowLanes * 4, kColumnsFurther = kColumnLanes * 4;
    const float *next_x = &terms.x[2][row_at(0)], *next_w = &terms.w[2][column_at(0)];
    float even[kEdge][kEdge], odd[kEdge][kEdge];
    Line even_x = line_at<kRowsFurther>(&terms.x[0][row_at(0)]);
    Line even_w = line_at<kColumnsFurther>(&terms.w[0][column_at(0)]);
    Line odd_x = line_at<kRowsFurther>(&terms.x[1][row_at(0)]);
    Line odd_w = line_at<kColumnsFurther>(&terms.w[1][column_at(0)]);
    multiply<true>(even_x, even_w, even);
    even_x = line_at<kRowsFurther>(next_x), even_w = line_at<kColumnsFurther>(next_w);
    multiply<true>(odd_x, odd_w, odd);
    odd_x = line_at<kRowsFurther>(next_x + kRows),
    odd_w = line_at<kColumnsFurther>(next_w + kColumns);
#pragma unroll 2
    for (unsigned pair = 2; pair < kTerms / 2; ++pair) {
        next_x += 2 * kRows, next_w += 2 * kColumns;
        multiply<false>(even_x, even_w, even);
        even_x = line_at<kRowsFurther>(next_x), even_w = line_at<kColumnsFurther>(next_w);
        __syncwarp(); // keeps the compiler from loading them later, just before they are used
        multiply<false>(odd_x, odd_w, odd);
        odd_x = line_at<kRowsFurther>(next_x + kRows);
        odd_w = line_at<kColumnsFurther>(next_w + kColumns);
    }
    multiply<false>(even_x, even_w, even);
    multiply<false>(odd_x, odd_w, odd);
#pragma unroll
    for (unsigned q = 0; q < kQuads; ++q) {
        const unsigned i = q / 2, j = q % 2 * 4;
        sums[q] = {add(even[i][j], odd[i][j]), add(even[i][j + 1], odd[i][j + 1]),
                   add(even[i][j + 2], odd[i][j + 2]), add(even[i][j + 3], odd[i][j + 3])};
    }
}

// The order in which warps add their rule blocks to c.
struct Turns {
    size_t block, blocks;

    // Waits until the rule blocks before this one have been added.
    __device__ void await() const {
        if (block != 0) {
            await_turn(static_cast<unsigned>(block % kWarps));
        }
    }
    __device__ void pass() const {
        if (block + 1 < blocks) {
            pass_turn(static_cast<unsigned>((block + 1) % kWarps));
        }
    }
};

__device__ void add_block(const Terms &terms, float4 (*c)[kWarp], const Turns &turns) {
    const unsigned lane = threadIdx.x % kWarp;
    float4 sums[kQuads];
    sum_block(terms, sums);
    turns.await();
#pragma unroll
    for (unsigned q = 0; q < kQuads; ++q) {
        const float4 own = c[q][lane];
        c[q][lane] = {add(own.x, sums[q].x), add(own.y, sums[q].y), add(own.z, sums[q].z),
                      add(own.w, sums[q].w)};
    }
    turns.pass();
}

__device__ void add_block_carefully(const Terms &terms, float4 (*c)[kWarp], const Turns &turns) {
    turns.await();
#pragma unroll 1
    for (unsigned element = 0; element < kEdge * kEdge; ++element) {
        const float *x = &terms.x[0][row_at(element / kEdge)];
        const float *w = &terms.w[0][column_at(element % kEdge)];
        const auto pair_at = [](const float *from, size_t lines, uint32_t p) {
            return __builtin_bit_cast(uint32_t, from[2 * p * lines]) >> 16 |
                   __builtin_bit_cast(uint32_t, from[(2 * p + 1) * lines]);
        };
        const float sum = careful_sum([&](uint32_t p) { return pair_at(x, kRows, p); },
                                      [&](uint32_t p) { return pair_at(w, kColumns, p); });
        float &own = reinterpret_cast<float *>(&c[element / 4][threadIdx.x % kWarp])[element % 4];
        own = add(own, sum);
    }
    turns.pass();
}

// Returns the smallest exponent of the tile's weights to all lanes.
__device__ uint32_t least_of(const uint32_t *least, unsigned columns) {
    uint32_t own = kNoExponent;
    for (unsigned n = threadIdx.x % kWarp; n < columns; n += kWarp) {
        own = least[n] < own ? least[n] : own;
    }
    return __reduce_min_sync(kAllLanes, own);
}

// Stores a quarter of every lane's outputs.
__device__ void store(const float4 (*c)[kWarp], const Tile &tile, const DeviceMatrix &w,
                      size_t first, float *y) {
    const unsigned warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    const bool aligned = w.outputs % 4 == 0 && reinterpret_cast<uintptr_t>(y) % sizeof(float4) == 0;
#pragma unroll
    for (unsigned q = warp * (kQuads / kWarps); q < (warp + 1) * (kQuads / kWarps); ++q) {
        const unsigned row = row_at(q / 2), column = column_at(q % 2 * 4);
        if (row >= tile.rows || column >= tile.columns) {
            continue;
        }
        const float4 four = c[q][lane];
        float sums[] = {four.x, four.y, four.z, four.w};
        const unsigned count = tile.columns - column < 4 ? tile.columns - column : 4;
        if (w.bias != nullptr) {
            for (unsigned j = 0; j < count; ++j) {
                sums[j] = add(sums[j], w.bias[first + column + j]);
            }
        }
        float *to = y + row * w.outputs + column;
        if (aligned) {
            *reinterpret_cast<float4 *>(to) = {sums[0], sums[1], sums[2], sums[3]};
            continue;
        }
        for (unsigned j = 0; j < count; ++j) {
            to[j] = sums[j];
        }
    }
}

__global__ void __launch_bounds__(kThreads, 2) tiles_kernel(const __grid_constant__ Tiles tiles) {
    wait_for_previous();
    // Tiles of the same outputs are consecutive, so that their weights come from the second-level
    // cache.
    unsigned i = 0, across = blockIdx.x / tiles.down;
    while (across >= tiles.across[i]) {
        across -= tiles.across[i++];
    }
    const DeviceMatrix &w = tiles.task.w[i];
    const size_t first_row = size_t{blockIdx.x % tiles.down} * kRows;
    const size_t first = size_t{across} * kColumns;
    const size_t rows = tiles.task.rows - first_row, columns = w.outputs - first;
    const Tile tile = {tiles.task.x + first_row * w.depth, w.w + first * w.depth, w.depth,
                       rows < kRows ? static_cast<unsigned>(rows) : kRows,
                       columns < kColumns ? static_cast<unsigned>(columns) : kColumns};
    Shared &shared = *dynamic_shared<Shared>();
    // A lane's value tells the compiler that a warp does not diverge.
    const unsigned warp = __shfl_sync(kAllLanes, threadIdx.x / kWarp, 0);
    const size_t blocks = divide_up(w.depth, kTerms);
    const uint32_t span = unsafe_span(least_of(w.least + first, tile.columns));

    Terms &terms = shared.terms[warp];
    if (warp < blocks) {
        begin_block(tile, warp, terms);
    }
    end_copies();
    for (unsigned i = threadIdx.x; i < kQuads * kWarp; i += kThreads) {
        shared.c[i / kWarp][i % kWarp] = {0.0F, 0.0F, 0.0F, 0.0F};
    }
    __syncthreads();
    for (size_t block = warp; block < blocks; block += kWarps) {
        wait_copies<0>();
        __syncwarp();
        const bool careful = widen(terms, span);
        __syncwarp();
        if (block + kWarps < blocks) {
            begin_block(tile, block + kWarps, terms);
        }
        end_copies();
        const Turns turns = {block, blocks};
        if (careful) {
            add_block_carefully(terms, shared.c, turns);
        } else {
            add_block(terms, shared.c, turns);
        }
        __syncwarp(); // the terms have been read
    }
    __syncthreads();
    store(shared.c, tile, w, first, tiles.task.y[i] + first_row * w.outputs + first);
}

} // namespace

size_t count_tiles(const DeviceProduct &task) {
    size_t across = 0;
    for (size_t i = 0; i < task.count; ++i) {
        across += divide_up(task.w[i].outputs, kColumns);
    }
    return divide_up(task.rows, kRows) * across;
}

void tiles(DeviceQueue *queue, const DeviceProduct &task) {
    Tiles work = {};
    work.task = task;
    work.down = static_cast<unsigned>(divide_up(task.rows, kRows));
    for (size_t i = 0; i < task.count; ++i) {
        work.across[i] = static_cast<unsigned>(divide_up(task.w[i].outputs, kColumns));
    }
    enqueue(queue, {dim3(static_cast<unsigned>(count_tiles(task))), kThreads, sizeof(Shared)},
            tiles_kernel, work);
}

} // namespace stasis::kernels::device
