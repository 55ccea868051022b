// Products of many rows, as in prefill, whose time is the time of arithmetic. A block of threads
// computes a tile of 32 rows and 64 outputs. Its 4 warps take rule blocks in turn, which are
// independent. Each computes the whole tile, 8 x 8 outputs a lane, from terms in shared memory that
// it copied itself one rule block ahead. Then the 4 sums of a round are merged in ascending order,
// a quarter of the tile by each warp. So the three accumulators of an output are never in one
// thread's registers together, and even 128 rows of 2048 outputs make 128 blocks.
//
// Instructions of a warp for a rule block of the tile (sm_90): 2048 fma; 256 unpacks of weights and
// 96 wide shared loads; 128 adds; 64 initial zeros; 32 wide loads and stores of sums; 76 to unpack
// and test x; the rest copies and indices, some 3000. Two thirds are fma, which is the bound,
// because a multiprocessor issues as many instructions as it has fma units. Each fma of a thread
// needs up to 0.75 bytes from shared memory, which provides 1. Estimated, not measured.
#include "runtime/kernels/cuda/kernels.h"
#include "runtime/kernels/cuda/product.h"

namespace stasis::kernels::device {

namespace {

constexpr unsigned kWarps = 4, kThreads = kWarps * kWarp;
constexpr unsigned kEdge = 8;                       // edge of a lane's square of outputs
constexpr unsigned kRowLanes = 4, kColumnLanes = 8; // lanes of a warp
constexpr unsigned kRows = kRowLanes * kEdge, kColumns = kColumnLanes * kEdge;
constexpr unsigned kQuads = kEdge * kEdge / 4; // quads of a lane's sums

// Returns the index of piece `piece` of a row of x. Pieces are permuted so that 4 neighbouring
// rows, which a warp reads at once, come from different banks, and rows of a lane are permuted
// alike.
__device__ unsigned turned_row(unsigned row, unsigned piece) {
    return row * kPieces + (piece ^ (row & 3U));
}

// A rule block of the tile's rows and outputs; pieces are permuted.
struct Terms {
    uint4 x[kRows * kPieces];
    uint4 w[kColumns * kPieces];
};

struct Shared {
    Terms terms[kWarps][2];
    float4 wide[kWarps][2 * kRows * kPieces]; // x of the block being computed, pieces permuted
    float4 sums[kWarps][kQuads][kWarp]; // a lane's element (i, j) is component j % 4 of 2 i + j / 4
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
    constexpr unsigned kStep = kWarp / kPieces;
    const unsigned line = threadIdx.x % kWarp / kPieces;
    const uint16_t *row = from + (line < lines ? line : lines - 1) * depth;
    if (depth % kPieceTerms == 0 && k < depth) {
#pragma unroll
        for (unsigned i = 0; i < kLines / kStep; ++i) {
            copy_async(to + i * kWarp, row + k);
            row += line + (i + 1) * kStep < lines ? kStep * depth : 0;
        }
    } else {
#pragma unroll 1
        for (unsigned i = 0; i < kLines / kStep; ++i) {
            to[i * kWarp] = load_piece(row, k, depth);
            row += line + (i + 1) * kStep < lines ? kStep * depth : 0;
        }
    }
}

__device__ void begin_block(const Tile &tile, size_t block, Terms &terms) {
    const unsigned line = threadIdx.x % kWarp / kPieces, piece = threadIdx.x % kPieces;
    const size_t k = block * kTerms + piece * kPieceTerms;
    copy_lines<kRows>(tile.x, tile.rows, tile.depth, k, &terms.x[turned_row(line, piece)]);
    copy_lines<kColumns>(tile.w, tile.columns, tile.depth, k, &terms.w[turned(line, piece)]);
}

// Unpacks x, which every output needs: the pieces that this lane copied. Returns whether the plain
// fma is not enough for it.
__device__ bool widen(const Terms &terms, uint32_t span, float4 *wide) {
    const unsigned line = threadIdx.x % kWarp / kPieces, piece = threadIdx.x % kPieces;
    const unsigned own = turned_row(line, piece);
    uint32_t unsafe = 0;
#pragma unroll
    for (unsigned i = 0; i < kRows * kPieces; i += kWarp) {
        const uint4 x = terms.x[own + i];
        unsafe |= unsafe_terms(x, span);
        float4 *to = wide + size_t{2} * (own + i);
        to[0] = {first_of(x.x), second_of(x.x), first_of(x.y), second_of(x.y)};
        to[1] = {first_of(x.z), second_of(x.z), first_of(x.w), second_of(x.w)};
    }
    return __any_sync(kAllLanes, (unsafe & kUnsafe) != 0) != 0;
}

// Multiplies 4 terms of 8 rows and 8 outputs.
__device__ void multiply(const float4 (&x)[kEdge], const uint2 (&w)[kEdge],
                         float (&even)[kEdge][kEdge], float (&odd)[kEdge][kEdge]) {
#pragma unroll
    for (unsigned p = 0; p < 2; ++p) {
#pragma unroll
        for (unsigned j = 0; j < kEdge; ++j) {
            const uint32_t pair = p == 0 ? w[j].x : w[j].y;
#pragma unroll
            for (unsigned i = 0; i < kEdge; ++i) {
                even[i][j] = fma(p == 0 ? x[i].x : x[i].z, first_of(pair), even[i][j]);
                odd[i][j] = fma(p == 0 ? x[i].y : x[i].w, second_of(pair), odd[i][j]);
            }
        }
    }
}

// Sums a rule block. A lane has rows lane / 8 + 4 i and outputs lane % 8 + 8 j.
__device__ void sum_block(const float4 *wide, const Terms &terms, float4 (*sums)[kWarp]) {
    const unsigned lane = threadIdx.x % kWarp;
    const unsigned row = lane / kColumnLanes, column = lane % kColumnLanes;
    float even[kEdge][kEdge] = {}, odd[kEdge][kEdge] = {};
#pragma unroll 1
    for (unsigned piece = 0; piece < kPieces; ++piece) {
        const float4 *x = wide + size_t{2} * turned_row(row, piece);
        const auto *w = reinterpret_cast<const uint2 *>(terms.w + turned(column, piece));
#pragma unroll
        for (unsigned half = 0; half < 2; ++half) {
            float4 a[kEdge];
            uint2 b[kEdge];
#pragma unroll
            for (unsigned i = 0; i < kEdge; ++i) {
                a[i] = x[i * (kRowLanes * kPieces * 2) + half];
                b[i] = w[i * (kColumnLanes * kPieces * 2) + half];
            }
            multiply(a, b, even, odd);
        }
    }
#pragma unroll
    for (unsigned q = 0; q < kQuads; ++q) {
        const unsigned i = q / 2, j = q % 2 * 4;
        sums[q][lane] = {add(even[i][j], odd[i][j]), add(even[i][j + 1], odd[i][j + 1]),
                         add(even[i][j + 2], odd[i][j + 2]), add(even[i][j + 3], odd[i][j + 3])};
    }
}

__device__ void sum_block_carefully(const Terms &terms, float4 (*sums)[kWarp]) {
    const unsigned lane = threadIdx.x % kWarp;
    const auto *x = reinterpret_cast<const uint32_t *>(terms.x);
    const auto *w = reinterpret_cast<const uint32_t *>(terms.w);
#pragma unroll 1
    for (unsigned element = 0; element < kEdge * kEdge; ++element) {
        const unsigned row = lane / kColumnLanes + kRowLanes * (element / kEdge);
        const unsigned column = lane % kColumnLanes + kColumnLanes * (element % kEdge);
        const float sum =
            careful_sum([&](unsigned p) { return x[turned_row(row, p / 4) * 4 + p % 4]; },
                        [&](unsigned p) { return w[turned(column, p / 4) * 4 + p % 4]; });
        reinterpret_cast<float *>(&sums[element / 4][lane])[element % 4] = sum;
    }
}

// Merges c of this warp's quarter of every lane's outputs: rows 2 warp and 2 warp + 1 of the 8.
__device__ void merge(const Shared &shared, unsigned count, float (&c)[kQuads]) {
    const unsigned warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
#pragma unroll
    for (unsigned b = 0; b < kWarps; ++b) { // ascending
        if (b >= count) {
            break;
        }
#pragma unroll
        for (unsigned q = 0; q < kQuads / kWarps; ++q) {
            const float4 sum = shared.sums[b][warp * (kQuads / kWarps) + q][lane];
            c[4 * q] = add(c[4 * q], sum.x);
            c[4 * q + 1] = add(c[4 * q + 1], sum.y);
            c[4 * q + 2] = add(c[4 * q + 2], sum.z);
            c[4 * q + 3] = add(c[4 * q + 3], sum.w);
        }
    }
}

// Returns the smallest exponent of the tile's weights to all lanes.
__device__ uint32_t least_of(const uint32_t *least, unsigned columns) {
    uint32_t own = kNoExponent;
    for (unsigned n = threadIdx.x % kWarp; n < columns; n += kWarp) {
        own = least[n] < own ? least[n] : own;
    }
    return __reduce_min_sync(kAllLanes, own);
}

__device__ void store(const float (&c)[kQuads], const Tile &tile, const DeviceMatrix &w,
                      size_t first, float *y) {
    const unsigned warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
#pragma unroll
    for (unsigned n = 0; n < kQuads; ++n) {
        const unsigned i = 2 * warp + n / kEdge;
        const unsigned row = lane / kColumnLanes + kRowLanes * i;
        const unsigned column = lane % kColumnLanes + kColumnLanes * (n % kEdge);
        if (row < tile.rows && column < tile.columns) {
            const float value = w.bias != nullptr ? add(c[n], w.bias[first + column]) : c[n];
            y[row * w.outputs + column] = value;
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
    const unsigned warp = threadIdx.x / kWarp;
    const size_t blocks = divide_up(w.depth, kTerms);
    const uint32_t span = unsafe_span(least_of(w.least + first, tile.columns));

    // Each round computes 4 rule blocks, one a warp, and merges them in order. Copies run one round
    // ahead.
    float c[kQuads] = {};
    unsigned turn = 0;
    if (warp < blocks) {
        begin_block(tile, warp, shared.terms[warp][0]);
    }
    end_copies();
    for (size_t base = 0; base < blocks; base += kWarps) {
        const size_t block = base + warp;
        const Terms &terms = shared.terms[warp][turn++ % 2];
        if (block + kWarps < blocks) {
            begin_block(tile, block + kWarps, shared.terms[warp][turn % 2]);
        }
        end_copies();
        wait_copies<1>();
        if (block < blocks) {
            const bool careful = widen(terms, span, shared.wide[warp]);
            __syncwarp();
            if (careful) {
                sum_block_carefully(terms, shared.sums[warp]);
            } else {
                sum_block(shared.wide[warp], terms, shared.sums[warp]);
            }
        }
        __syncthreads();
        merge(shared, blocks - base < kWarps ? static_cast<unsigned>(blocks - base) : kWarps, c);
        __syncthreads();
    }
    store(c, tile, w, first, tiles.task.y[i] + first_row * w.outputs + first);
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
