// Products of many rows: prefill, where arithmetic is all that counts.
// A block of threads computes a tile of 32 rows and 64 outputs. Its 4 warps take rule blocks in
// turns (they do not depend on each other), each the whole tile, 8 x 8 outputs a lane, from bf16
// terms in shared memory that it copies itself, one rule block ahead. Then the 4 sums of a round are
// merged in ascending order, a quarter of the tile by each warp. So the three accumulators of an
// output never share a thread's registers, and even 128 rows of 2048 outputs make 128 blocks.
//
// Instructions of a warp for a rule block of the tile: 2048 fma; 512 unpacks and 64 wide shared
// loads; 68 for the test of x (C2); 64 adds, 16 wide stores; 16 wide loads and 64 adds to merge;
// some 60 to copy: 72 % are fma, which is the bound, as a multiprocessor starts as many instructions
// as it has fma units. Shared memory gives 0.5 bytes for each fma of a thread and has 1.
#include "runtime/kernels/cuda/kernels.h"
#include "runtime/kernels/cuda/product.h"

namespace stasis::kernels::device {

namespace {

constexpr unsigned kWarps = 4, kThreads = kWarps * kWarp;
constexpr unsigned kEdge = 8;                          // of a lane's square of outputs
constexpr unsigned kRowLanes = 4, kColumnLanes = 8;    // of a warp
constexpr unsigned kRows = kRowLanes * kEdge, kColumns = kColumnLanes * kEdge;
constexpr unsigned kQuads = kEdge * kEdge / 4;         // of a lane's sums

// A rule block of the tile's rows and outputs; pieces are turned.
struct Terms {
    uint4 x[kRows * kPieces];
    uint4 w[kColumns * kPieces];
};

struct Shared {
    Terms terms[kWarps][2];
    float4 sums[kWarps][kQuads][kWarp]; // lane's element (i, j) is component j % 4 of 2 i + j / 4
};

// The tile that a block of threads computes.
struct Tile {
    const uint16_t *x, *w; // of its first row and output
    size_t depth;
    unsigned rows, columns; // that exist
};

// Launched with the number of tiles of 32 rows, and of 64 outputs of each matrix.
struct Tiles {
    DeviceProduct task;
    unsigned down;
    unsigned across[3];
};

__device__ void begin_block(const Tile &tile, size_t block, Terms &terms) {
    const unsigned lane = threadIdx.x % kWarp, piece = lane % kPieces;
    const size_t k = block * kTerms + piece * kPieceTerms;
#pragma unroll
    for (unsigned i = lane / kPieces; i < kRows; i += kWarp / kPieces) {
        const size_t own = i < tile.rows ? k : tile.depth; // +0 where there is no row
        copy_piece(&terms.x[turned(i, piece)], tile.x + i * tile.depth, own, tile.depth);
    }
#pragma unroll
    for (unsigned i = lane / kPieces; i < kColumns; i += kWarp / kPieces) {
        const size_t own = i < tile.columns ? k : tile.depth;
        copy_piece(&terms.w[turned(i, piece)], tile.w + i * tile.depth, own, tile.depth);
    }
}

// Whether x has a term for which the plain fma is not enough.
__device__ bool unsafe_block(const Terms &terms, uint32_t span) {
    static_assert(kRows == kWarp);
    const unsigned lane = threadIdx.x % kWarp;
    uint32_t unsafe = 0;
#pragma unroll
    for (unsigned c = 0; c < kPieces; ++c) {
        unsafe |= unsafe_terms(terms.x[turned(lane, c)], span);
    }
    return __any_sync(kAllLanes, (unsafe & kUnsafe) != 0) != 0;
}

// A lane has rows lane / 8 + 4 i and outputs lane % 8 + 8 j.
__device__ void sum_block(const Terms &terms, float4 (*sums)[kWarp]) {
    const unsigned lane = threadIdx.x % kWarp;
    const unsigned row = lane / kColumnLanes, column = lane % kColumnLanes;
    float even[kEdge][kEdge] = {}, odd[kEdge][kEdge] = {};
#pragma unroll 1
    for (unsigned half = 0; half < 2 * kPieces; ++half) { // 4 terms: 32 registers of pairs
        uint2 x[kEdge], w[kEdge];
#pragma unroll
        for (unsigned i = 0; i < kEdge; ++i) {
            const unsigned own = turned(row + kRowLanes * i, half / 2);
            const unsigned other = turned(column + kColumnLanes * i, half / 2);
            x[i] = reinterpret_cast<const uint2 *>(terms.x)[own * 2 + half % 2];
            w[i] = reinterpret_cast<const uint2 *>(terms.w)[other * 2 + half % 2];
        }
#pragma unroll
        for (unsigned p = 0; p < 2; ++p) {
#pragma unroll
            for (unsigned j = 0; j < kEdge; ++j) {
                const uint32_t b = p == 0 ? w[j].x : w[j].y;
                const float first = first_of(b), second = second_of(b);
#pragma unroll
                for (unsigned i = 0; i < kEdge; ++i) {
                    const uint32_t a = p == 0 ? x[i].x : x[i].y;
                    even[i][j] = fma(first_of(a), first, even[i][j]);
                    odd[i][j] = fma(second_of(a), second, odd[i][j]);
                }
            }
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
            careful_sum([&](unsigned p) { return x[turned(row, p / 4) * 4 + p % 4]; },
                        [&](unsigned p) { return w[turned(column, p / 4) * 4 + p % 4]; });
        reinterpret_cast<float *>(&sums[element / 4][lane])[element % 4] = sum;
    }
}

// c of this warp's quarter of every lane's outputs: rows 2 warp and 2 warp + 1 of the 8.
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

// The smallest exponent of the tile's weights, for all lanes.
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
    // Tiles of the same outputs follow each other: their weights come from the second-level cache.
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
        __syncwarp();
        if (block < blocks) {
            if (unsafe_block(terms, span)) {
                sum_block_carefully(terms, shared.sums[warp]);
            } else {
                sum_block(terms, shared.sums[warp]);
            }
        }
        __syncthreads();
        merge(shared, blocks - base < kWarps ? static_cast<unsigned>(blocks - base) : kWarps, c);
        __syncthreads();
    }
    store(c, tile, w, first, tiles.task.y[i] + first_row * w.outputs + first);
}

} // namespace

void tiles(DeviceQueue *queue, const DeviceProduct &task) {
    Tiles work = {};
    work.task = task;
    work.down = static_cast<unsigned>(divide_up(task.rows, kRows));
    unsigned across = 0;
    for (size_t i = 0; i < task.count; ++i) {
        work.across[i] = static_cast<unsigned>(divide_up(task.w[i].outputs, kColumns));
        across += work.across[i];
    }
    enqueue(queue, {dim3(work.down * across), kThreads, sizeof(Shared)}, tiles_kernel, work);
}

} // namespace stasis::kernels::device
