// Attention of many rows of a sequence (C5). A block of threads takes up to 64 queries of a tile's
// rows that share a KV head. It visits the pages that any of them sees in ascending order and
// merges each. 8 neighbouring lanes share a query and compute 8 slots, then 8 columns each, for up
// to 4 queries: 32 numbers, so that each value from shared memory is used in 4 or 8 steps. Operands
// are widened when they are stored in shared memory, 32 terms of the rule at a time.
#include "runtime/kernels/cuda/attention.h"
#include "runtime/kernels/cuda/kernels.h"

namespace stasis::kernels::device {

namespace {

constexpr unsigned kThreads = 128;
constexpr unsigned kTeams = kThreads / kScoreLanes; // teams of lanes that share a query
constexpr unsigned kColumns = 64;                   // columns of the output computed together
constexpr unsigned kPiece = 8;                      // numbers that a thread loads at once
// Numbers between rows of 32 terms: eight rows, or four of other queries, are read without bank
// conflict.
constexpr unsigned kStride = kTerms + 4;
static_assert(kTerms * kColumns <= kSlots * kStride); // values reuse the memory of keys

// Returns the floats of an output row, a multiple of 4 so that four are read at once.
__host__ __device__ constexpr unsigned padded(size_t head_dim) {
    return static_cast<unsigned>((head_dim + 3) / 4 * 4);
}

constexpr size_t shared_bytes(unsigned rows, size_t head_dim) {
    const size_t floats = kSlots * kStride + kTeams * rows * (kScoreStride + padded(head_dim));
    return floats * sizeof(float);
}

__device__ void take(const float *x, float (&to)[4]) {
    const float4 four = *reinterpret_cast<const float4 *>(x);
    to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
}
__device__ void take(const float *x, float (&to)[2]) {
    const float2 two = *reinterpret_cast<const float2 *>(x);
    to[0] = two.x, to[1] = two.y;
}

// Terms read from shared memory at once: C2's arithmetic needs registers of its own.
template <bool kTiny> constexpr unsigned kStepOf = kTiny ? 2 : 4;

// Widens `rows` rows of `columns` numbers from `begin` on into shared memory. row_of(i) returns the
// begin of row i; a null row counts as +0, as do numbers past the end of a row.
template <typename RowOf>
__device__ void stage(float *to, unsigned stride, unsigned rows, unsigned columns, size_t begin,
                      size_t head_dim, Least &least, const RowOf &row_of) {
    const unsigned pieces = columns / kPiece;
    const bool wide = head_dim % kPiece == 0;
    for (unsigned i = threadIdx.x; i < rows * pieces; i += kThreads) {
        const unsigned row = i / pieces, column = i % pieces * kPiece;
        const uint16_t *from = row_of(row);
        uint4 eight = {0, 0, 0, 0};
        if (from != nullptr && begin + column < head_dim) {
            eight = eight_at(from + begin + column, head_dim - begin - column, wide);
        }
        const float4 first = {low_of(eight.x), high_of(eight.x), low_of(eight.y), high_of(eight.y)};
        const float4 second = {low_of(eight.z), high_of(eight.z), low_of(eight.w),
                               high_of(eight.w)};
        for (const float x :
             {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w}) {
            least.add(x);
        }
        auto *place = reinterpret_cast<float4 *>(to + row * stride + column);
        place[0] = first, place[1] = second;
    }
}

// The state that the threads of a block share, besides dynamic shared memory.
struct State {
    float maximum[kSlots], sum[kSlots]; // of the pages so far
    float alpha[kSlots], beta[kSlots];  // factors to merge the present page
    // Keys of Least: of all queries, and of the weights of the present page.
    uint32_t queries, weights;
    Pages pages;        // of the sequence
    uint64_t low, high; // the positions that any query sees
};

// Queries of a tile, kRows for each team. Query i of the tile is that of row i / group_heads.
template <unsigned kRows> struct Queries {
    const DeviceAttention &task;
    const DeviceTile tile;
    const unsigned group_heads, kv_head;
    const unsigned begin, count; // of the tile's queries
    State &state;
    float *left;   // [64][kStride] keys, or [32][kColumns] values
    float *right;  // [kQueries][kStride] queries, or [kQueries][kScoreStride] scores and weights
    float *output; // [kQueries][padded(head_dim)]: o; one thread accesses each number
    const unsigned team = threadIdx.x / kScoreLanes, lane = threadIdx.x % kScoreLanes;

    static constexpr unsigned kQueries = kTeams * kRows;
    // Blocks of threads resident on a multiprocessor, which bounds a thread's registers.
// The compiler for compute capability 10.0 and later loads further ahead.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
    static constexpr unsigned kResident = 2;
#else
    static constexpr unsigned kResident = 3;
#endif
    using Sums = float[kRows][8];

    __device__ size_t row(unsigned query) const {
        return tile.row + (begin + query) / group_heads;
    }
    __device__ size_t at(unsigned query) const {
        const size_t head = kv_head * group_heads + (begin + query) % group_heads;
        return (row(query) * task.heads + head) * task.head_dim;
    }
    __device__ uint64_t position(unsigned query) const {
        return task.pass.rows[row(query)].position;
    }
    // Returns the slots of a block that a query sees.
    __device__ uint64_t visible(unsigned query, uint64_t block) const {
        if (query >= count) {
            return 0;
        }
        const uint64_t own = position(query);
        return visible_slots(own, task.window, block) & state.pages.held(block);
    }

    __device__ void stage_queries(size_t term, Least &least) const {
        stage(right, kStride, kQueries, kTerms, term, task.head_dim, least,
              [&](unsigned i) { return i < count ? task.query + at(i) : nullptr; });
    }

    __device__ void prepare() const {
        for (unsigned i = threadIdx.x; i < kQueries * padded(task.head_dim); i += kThreads) {
            output[i] = 0.0F;
        }
        if (threadIdx.x < kQueries) {
            state.maximum[threadIdx.x] = -__builtin_inff();
            state.sum[threadIdx.x] = 0.0F;
        }
        if (threadIdx.x == 0) {
            state.queries = 0xFFFFFFFFU;
            state.pages = pages_of(task, task.pass.rows[tile.row].sequence);
            state.low = first_visible(position(0), task.window);
            state.high = position(count - 1);
        }
        __syncthreads();
        Least least;
        for (size_t term = 0; term < task.head_dim; term += kTerms) {
            stage_queries(term, least);
        }
        add_of_warp(&state.queries, least); // read after later barriers
    }

    // Computes one block of the rule along the head, for the team's queries and the lane's slots.
    template <bool kTiny> __device__ void multiply_keys(unsigned terms, Sums &total) const {
        constexpr unsigned kStep = kStepOf<kTiny>;
        Sums sums[2] = {}; // even, odd
#pragma unroll 1
        for (unsigned k = 0; k < terms; k += kStep) {
            float query[kRows][kStep];
#pragma unroll
            for (unsigned i = 0; i < kRows; ++i) {
                take(right + (team + kTeams * i) * kStride + k, query[i]);
            }
#pragma unroll
            for (unsigned j = 0; j < 8; ++j) {
                float key[kStep];
                take(left + (lane + kScoreLanes * j) * kStride + k, key);
#pragma unroll
                for (unsigned t = 0; t < kStep; ++t) {
#pragma unroll
                    for (unsigned i = 0; i < kRows; ++i) {
                        float &sum = sums[t % 2][i][j];
                        sum = chain<kTiny>(query[i][t], key[t], sum);
                    }
                }
            }
        }
        add_chains(sums, total);
    }

    // Computes one block of the rule along the slots, for the lane's columns: four from 4 * lane
    // on, and four that are 32 higher if they exist.
    template <bool kTiny>
    __device__ void multiply_values(unsigned slot, bool further, Sums &total) const {
        constexpr unsigned kStep = kStepOf<kTiny>;
        Sums sums[2] = {}; // even, odd
#pragma unroll 1
        for (unsigned s = 0; s < kTerms; s += kStep) {
            float p[kRows][kStep];
#pragma unroll
            for (unsigned i = 0; i < kRows; ++i) {
                take(right + (team + kTeams * i) * kScoreStride + slot + s, p[i]);
            }
#pragma unroll
            for (unsigned t = 0; t < kStep; ++t) {
#pragma unroll
                for (unsigned four = 0; four < 8; four += 4) {
                    if (four != 0 && !further) {
                        continue;
                    }
                    float value[4];
                    take(left + (s + t) * kColumns + 4 * lane + 8 * four, value);
#pragma unroll
                    for (unsigned j = 0; j < 4 * kRows; ++j) {
                        float &sum = sums[t % 2][j / 4][four + j % 4];
                        sum = chain<kTiny>(p[j / 4][t], value[j % 4], sum);
                    }
                }
            }
        }
        add_chains(sums, total);
    }

    __device__ static void add_chains(const Sums (&sums)[2], Sums &total) {
#pragma unroll
        for (unsigned i = 0; i < kRows; ++i) {
#pragma unroll
            for (unsigned j = 0; j < 8; ++j) {
                total[i][j] = add(total[i][j], add(sums[0][i][j], sums[1][i][j]));
            }
        }
    }

    // Stores the products of the queries with the keys that any of them sees in shared memory.
    __device__ void score(const uint16_t *keys, uint64_t seen) const {
        Sums total = {};
        for (size_t term = 0; term < task.head_dim; term += kTerms) {
            __syncthreads(); // earlier contents have been read
            Least least, unused;
            stage(left, kStride, kSlots, kTerms, term, task.head_dim, least, [&](unsigned slot) {
                return (seen >> slot & 1U) != 0 ? keys + slot * task.head_dim : nullptr;
            });
            stage_queries(term, unused);
            const size_t rest = padded(task.head_dim) - term;
            const auto terms = static_cast<unsigned>(rest < kTerms ? rest : kTerms);
            if (any_tiny({state.queries}, least)) {
                multiply_keys<true>(terms, total);
            } else {
                multiply_keys<false>(terms, total);
            }
        }
        __syncthreads(); // the queries have been read; the scores replace them
#pragma unroll
        for (unsigned i = 0; i < kRows; ++i) {
#pragma unroll
            for (unsigned j = 0; j < 8; ++j) {
                right[(team + kTeams * i) * kScoreStride + lane + kScoreLanes * j] = total[i][j];
            }
        }
    }

    // Reports whether plain arithmetic may not be enough for products of numbers whose key all
    // threads have with numbers that each thread has loaded. Also a barrier.
    __device__ static bool any_tiny(const Least &known, const Least &own) {
        return __syncthreads_or(known.exponent() + own.exponent() < kSafeExponents ? 1 : 0) != 0;
    }

    // Computes the weights of the page, and the factors by which it merges with those before it.
    __device__ void weigh_scores(uint64_t block) const {
        Least least;
#pragma unroll 1
        for (unsigned i = 0; i < kRows; ++i) {
            const unsigned query = team + kTeams * i;
            const uint64_t mask = visible(query, block);
            const Weighed own = weigh(task, right + query * kScoreStride, mask, lane, least);
            if (lane != 0) {
                continue;
            }
            Merged by = {0.0F, 1.0F, 0.0F}; // no slot is visible: o stays
            if (mask != 0) {
                by = merge_maxima(state.maximum[query], own.maximum);
                state.maximum[query] = by.maximum;
                state.sum[query] = merge_sums(state.sum[query], own.sum, by);
            }
            state.alpha[query] = by.alpha, state.beta[query] = by.beta;
        }
        add_of_warp(&state.weights, least);
    }

    __device__ void add_values(const uint16_t *values, uint64_t seen) const {
        for (size_t column = 0; column < task.head_dim; column += kColumns) {
            Sums total = {};
            for (unsigned slot = 0; slot < kSlots; slot += kTerms) {
                __syncthreads(); // earlier contents have been read; the weights are complete
                Least least;
                stage(left, kColumns, kTerms, kColumns, column, task.head_dim, least,
                      [&](unsigned i) {
                          return (seen >> (slot + i) & 1U) != 0
                                     ? values + (slot + i) * task.head_dim
                                     : nullptr;
                      });
                const bool further = task.head_dim - column > 32;
                if (any_tiny({state.weights}, least)) {
                    multiply_values<true>(slot, further, total);
                } else {
                    multiply_values<false>(slot, further, total);
                }
            }
            merge(column, total);
        }
    }

    __device__ void merge(size_t column, const Sums &total) const {
        const unsigned width = padded(task.head_dim);
#pragma unroll
        for (unsigned i = 0; i < kRows; ++i) {
            const unsigned query = team + kTeams * i;
            const float alpha = state.alpha[query], beta = state.beta[query];
#pragma unroll
            for (unsigned j = 0; j < 8; ++j) {
                const size_t at = column + 4 * lane + j % 4 + j / 4 * 32;
                if (at < width) {
                    float &o = output[query * width + at];
                    o = c2_fma(add(total[i][j], 0.0F), beta, c2_mul(o, alpha));
                }
            }
        }
    }

    __device__ void finish() const {
        const unsigned pairs = static_cast<unsigned>(task.head_dim / 2);
        __syncthreads(); // after this, any thread may read any number
        for (unsigned i = threadIdx.x; i < count * pairs; i += kThreads) {
            const unsigned query = i / pairs, column = i % pairs * 2;
            const float *o = output + query * padded(task.head_dim) + column;
            const float sum = state.sum[query];
            const uint32_t low = f32_to_bf16(c2_div(o[0], sum));
            const uint32_t high = f32_to_bf16(c2_div(o[1], sum));
            *reinterpret_cast<uint32_t *>(task.output + at(query) + column) = high << 16 | low;
        }
    }
};

// Every supported device gives a block of threads 99 KiB.
static_assert(shared_bytes(4, 256) + sizeof(State) <= 99 * 1024);

template <unsigned kRows>
__global__ void __launch_bounds__(kThreads, Queries<kRows>::kResident)
    tiles_kernel(DeviceAttention task, const DeviceTile *tiles) {
    wait_for_previous();
    __shared__ State state;
    const DeviceTile tile = tiles[gridDim.x - 1 - blockIdx.x]; // the longest tiles begin first
    const auto group_heads = static_cast<unsigned>(task.heads / task.kv_heads);
    const unsigned begin = blockIdx.z * Queries<kRows>::kQueries;
    if (begin >= tile.count * group_heads) {
        return;
    }
    const unsigned left = tile.count * group_heads - begin;
    auto *shared = dynamic_shared<float>();
    float *right = shared + kSlots * kStride;
    const Queries<kRows> queries{
        task,        tile,
        group_heads, blockIdx.y,
        begin,       left < Queries<kRows>::kQueries ? left : Queries<kRows>::kQueries,
        state,       shared,
        right,       right + Queries<kRows>::kQueries * kScoreStride};
    queries.prepare();
    for (uint64_t block = state.low / kSlots; block <= state.high / kSlots; ++block) {
        const uint64_t seen = slots_of(state.low, state.high, block) & state.pages.held(block);
        const uint16_t *page = state.pages.page(block);
        if (seen == 0 || page == nullptr) {
            continue; // evicted whole
        }
        if (threadIdx.x == 0) {
            // A barrier follows its last use, and one precedes the next.
            state.weights = 0xFFFFFFFFU;
        }
        const size_t head = size_t{blockIdx.y} * kSlots * task.head_dim;
        queries.score(page + task.keys_at + head, seen);
        queries.weigh_scores(block);
        queries.add_values(page + task.values_at + head, seen);
    }
    queries.finish();
}

} // namespace

void attend_tiles(DeviceQueue *queue, const DeviceAttention &task, const DeviceTile *tiles,
                  size_t tile_count) {
    // Uses as few blocks of threads as can take all queries of a tile, and as few rows in each as
    // possible.
    const auto most = static_cast<unsigned>(kDeviceTileRows * task.heads / task.kv_heads);
    const unsigned blocks = (most + 4 * kTeams - 1) / (4 * kTeams);
    const unsigned rows = (most + blocks * kTeams - 1) / (blocks * kTeams);
    const Launch shape = {
        dim3(static_cast<unsigned>(tile_count), static_cast<unsigned>(task.kv_heads), blocks),
        kThreads, shared_bytes(rows, task.head_dim)};
    constexpr decltype(&tiles_kernel<1>) kKernels[] = {tiles_kernel<1>, tiles_kernel<2>,
                                                       tiles_kernel<3>, tiles_kernel<4>};
    enqueue(queue, shape, kKernels[rows - 1], task, tiles);
}

} // namespace stasis::kernels::device
