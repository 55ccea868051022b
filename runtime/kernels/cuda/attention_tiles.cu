// Attention of many rows of a sequence (C5). A block of threads takes up to 32 queries of a tile's
// rows that share a KV head. It visits the pages that any of them sees in ascending order and
// merges each. A page is computed in chunks of one rule block (C1): 32 terms of its keys and of the
// queries, or 32 slots of 64 columns of its values. While one is multiplied, the next is loaded
// into registers; it is widened when it is stored in shared memory, in the other of two buffers, so
// that a chunk needs one barrier. 8 lanes of a warp share a query and compute 8 slots, then 8
// columns each, for up to 2 queries: 16 numbers, so that each value from shared memory is used in 2
// or 8 steps. Scores, and what a page merges by, stay in registers. What every number of a page
// meets has no branch: a branch for each took longer than the arithmetic beside it.
#include "runtime/kernels/cuda/attention_chunk.h"
#include "runtime/kernels/cuda/kernels.h"

namespace stasis::kernels::device {

namespace {

// Returns the floats of an output row, a multiple of 4 so that four are read at once.
__host__ __device__ constexpr unsigned padded(size_t head_dim) {
    return static_cast<unsigned>((head_dim + 3) / 4 * 4);
}

// Returns the floats of shared memory for `rows` queries of each team.
constexpr size_t shared_floats(unsigned rows, size_t head_dim) {
    return 2 * kLeft + kTeams * rows * (2 * kStride + kScoreStride + padded(head_dim));
}

// The state that the threads of a block share, besides dynamic shared memory.
struct State {
    uint64_t position[kSlots]; // of the queries
    float sum[kSlots];         // l, at the end
    Seen seen;
    // Keys of Least: of all queries; of a chunk's keys or values, for three chunks in turn.
    uint32_t queries, left[3];
};

// Queries of a tile, kRows for each team. Query i of the tile is that of row i / group_heads.
template <unsigned kRows> struct Queries {
    const DeviceAttention &task;
    const DeviceTile tile;
    const unsigned group_heads, kv_head;
    const unsigned begin, count; // of the tile's queries
    State &state;
    float *left;    // [2][64][kStride] keys, or [2][32][kColumns] values
    float *right;   // [2][kQueries][kStride] queries
    float *weights; // [kQueries][kScoreStride]
    float *output;  // [kQueries][padded(head_dim)]: o; one thread accesses each number
    const unsigned team = team_of_thread(), lane = lane_of_thread();
    const unsigned head_dim = static_cast<unsigned>(task.head_dim);

    static constexpr unsigned kQueries = kTeams * kRows;
    static constexpr unsigned kRightPieces = (kRows + 1) / 2; // of a thread

    using Sums = device::Sums<kRows>;
    struct Pieces {
        uint4 left[kLeftPieces], right[kRightPieces];
    };
    struct Running {
        float maximum[kRows], sum[kRows];
        float alpha[kRows], beta[kRows]; // factors to merge the present page
        uint32_t least;                  // key of the warp's weights of the present page
    };

    __device__ size_t row(unsigned query) const { return tile.row + (begin + query) / group_heads; }
    __device__ size_t at(unsigned query) const {
        const size_t head = kv_head * group_heads + (begin + query) % group_heads;
        return (row(query) * task.heads + head) * task.head_dim;
    }

    // Returns numbers term .. term + 7 of a row; a row that is not there counts as +0, as do
    // numbers past its end. kWide: rows are whole pieces.
    template <bool kWide>
    __device__ uint4 piece_of(bool there, const uint16_t *row, unsigned term) const {
        uint4 piece = {0, 0, 0, 0};
        if (there & (term < head_dim)) {
            piece = eight_at(row + term, head_dim - term, kWide);
        }
        return piece;
    }
    // The query of which this thread loads piece n; it may be none of the tile's.
    __device__ unsigned query_of_piece(unsigned n) const {
        return (threadIdx.x + n * kThreads) / (kTerms / kPiece);
    }
    __device__ const uint16_t *query_row(unsigned n) const {
        const unsigned query = query_of_piece(n);
        return task.query + (query < count ? at(query) : 0);
    }

    __device__ void prepare() const {
        for (unsigned i = threadIdx.x; i < kQueries * padded(task.head_dim); i += kThreads) {
            output[i] = 0.0F;
        }
        if (threadIdx.x < kQueries) {
            state.position[threadIdx.x] =
                threadIdx.x < count ? task.pass.rows[row(threadIdx.x)].position : 0;
        }
        if (threadIdx.x == 0) {
            state.seen.pages = pages_of(task, task.pass.rows[tile.row].sequence);
            state.seen.low = first_visible(task.pass.rows[row(0)].position, task.window);
            state.seen.high = task.pass.rows[row(count - 1)].position;
            state.queries = state.left[0] = state.left[1] = state.left[2] = 0xFFFFFFFFU;
        }
        __syncthreads();
        Least least;
        for (unsigned n = 0; n < kRightPieces; ++n) {
            const uint16_t *row = query_row(n);
            const bool there = query_of_piece(n) < count;
            for (unsigned k = threadIdx.x % 4 * kPiece; k < head_dim; k += kTerms) {
                add_piece(least, piece_of<false>(there, row, k));
            }
        }
        add_of_warp(&state.queries, least); // read after later barriers
    }

    // Loads a thread's pieces of a chunk.
    template <bool kWide>
    __device__ void load_pieces(const Walk &walk, const uint16_t *const (&rows)[kRightPieces],
                                Pieces &pieces) const {
        const unsigned head = kv_head * kSlots * head_dim;
        const bool keys = walk.at_keys();
        const unsigned per_row = keys ? kTerms / kPiece : kColumns / kPiece;
        const unsigned term = (keys ? walk.term() : walk.column()) + threadIdx.x % per_row * kPiece;
        const unsigned first = (keys ? 0 : walk.slot()) + threadIdx.x / per_row;
        const uint16_t *from = walk.page + (keys ? task.keys_at : task.values_at) + head;
#pragma unroll
        for (unsigned n = 0; n < kLeftPieces; ++n) {
            const unsigned slot = first + n * (kThreads / per_row);
            const bool seen = (walk.seen >> slot & 1U) != 0;
            pieces.left[n] = piece_of<kWide>(seen, from + slot * head_dim, term);
        }
        if (keys) {
#pragma unroll
            for (unsigned n = 0; n < kRightPieces; ++n) {
                pieces.right[n] = piece_of<kWide>(query_of_piece(n) < count, rows[n], term);
            }
        }
    }
    __device__ void load(const Walk &walk, const uint16_t *const (&rows)[kRightPieces],
                         Pieces &pieces) const {
        if (task.head_dim % kPiece == 0) {
            load_pieces<true>(walk, rows, pieces);
        } else {
            load_pieces<false>(walk, rows, pieces);
        }
    }

    // Stores them in shared memory.
    __device__ void store(const Walk &walk, const Pieces &pieces, Turn turn) const {
        const bool keys = walk.at_keys();
        const unsigned stride = keys ? kStride : kColumns;
        const unsigned per_row = keys ? kTerms / kPiece : kColumns / kPiece;
        float *to = left + turn.buffer * kLeft + threadIdx.x / per_row * stride +
                    threadIdx.x % per_row * kPiece;
        Least least;
#pragma unroll
        for (unsigned n = 0; n < kLeftPieces; ++n) {
            add_piece(least, pieces.left[n]);
            widen(pieces.left[n], to + n * (kThreads / per_row) * stride);
        }
        if (keys) {
            constexpr unsigned kPerRow = kTerms / kPiece;
            to = right + turn.buffer * kQueries * kStride + threadIdx.x / kPerRow * kStride +
                 threadIdx.x % kPerRow * kPiece;
#pragma unroll
            for (unsigned n = 0; n < kRightPieces; ++n) {
                if ((n + 1) * kThreads <= kQueries * kPerRow ||
                    threadIdx.x + n * kThreads < kQueries * kPerRow) {
                    widen(pieces.right[n], to + n * (kThreads / kPerRow) * kStride);
                }
            }
        }
        add_of_warp(&state.left[turn.third], least);
    }

    // Adds a block of the rule along the head, for the team's queries and the lane's slots.
    __device__ void multiply_keys(Turn turn, Sums &total) const {
        const float *x = right + turn.buffer * kQueries * kStride + team * kStride;
        const float *keys = left + turn.buffer * kLeft + lane * kStride;
        const auto key_at = [&](unsigned j) { return keys + j * kScoreLanes * kStride; };
        if (are_tiny(state.queries, state.left[turn.third])) {
            add_carefully<kRows>(x, kStride, key_at, 1, total);
            return;
        }
        add_rule_block<kRows>(
            x, kStride, [&](unsigned four, unsigned j) { return four_at(key_at(j) + 4 * four); },
            [](const float4(&keys_of)[8], unsigned t, unsigned j) {
                return component(keys_of[j], t);
            },
            total);
    }

    // Adds a block of the rule along the slots, for the lane's columns: four from 4 * lane on, and
    // four that are 32 higher.
    __device__ void multiply_values(Turn turn, unsigned slot, const Running &running,
                                    Sums &total) const {
        const float *x = weights + team * kScoreStride + slot;
        const float *values = left + turn.buffer * kLeft + 4 * lane;
        if (are_tiny(running.least, state.left[turn.third])) {
            add_carefully<kRows>(
                x, kScoreStride, [&](unsigned j) { return values + j % 4 + j / 4 * 32; }, kColumns,
                total);
            return;
        }
        add_rule_block<kRows>(
            x, kScoreStride,
            [&](unsigned four, unsigned n) {
                return four_at(values + (4 * four + n / 2) * kColumns + n % 2 * 32);
            },
            [](const float4(&values_of)[8], unsigned t, unsigned j) {
                return component(values_of[2 * t + j / 4], j % 4);
            },
            total);
    }

    __device__ Visible visible_to(const Walk &walk, unsigned query) const {
        uint64_t mask = visible_slots(state.position[query], task.window, walk.block);
        mask = query < count ? mask & walk.held : 0;
        return {static_cast<uint32_t>(mask) >> lane, static_cast<uint32_t>(mask >> kTerms) >> lane,
                mask != 0};
    }

    // Converts products with keys to scores, -infinity where no slot is visible.
    __device__ void scale(const Visible (&visible)[kRows], Sums &scores) const {
        Sums scaled;
        float smallest = __builtin_inff();
#pragma unroll
        for (unsigned i = 0; i < kRows * 8; ++i) {
            const float score = mul(scores[i / 8][i % 8], task.scale);
            scaled[i / 8][i % 8] = seen(visible[i / 8], i % 8) ? score : -__builtin_inff();
            smallest = __builtin_fminf(smallest, __builtin_fabsf(scaled[i / 8][i % 8]));
        }
        if (task.softcap != 0.0F ||
            unsettled(smallest)) { // small and slow: registers have no index
            float *room = weights + team * kScoreStride + lane;
            const auto place = [](unsigned i) {
                return i / 8 * kTeams * kScoreStride + i % 8 * kScoreLanes;
            };
#pragma unroll
            for (unsigned i = 0; i < kRows * 8; ++i) {
                room[place(i)] = scores[i / 8][i % 8];
            }
#pragma unroll 1
            for (unsigned i = 0; i < kRows * 8; ++i) {
                room[place(i)] = scaled_score(task, room[place(i)]);
            }
#pragma unroll
            for (unsigned i = 0; i < kRows * 8; ++i) {
                const bool kept = seen(visible[i / 8], i % 8);
                scaled[i / 8][i % 8] = kept ? room[place(i)] : -__builtin_inff();
            }
        }
#pragma unroll
        for (unsigned i = 0; i < kRows * 8; ++i) {
            scores[i / 8][i % 8] = scaled[i / 8][i % 8];
        }
    }

    // Computes the weights of the page from the products with its keys, and the factors by which it
    // merges with those before it. Lanes of a team have the same factors.
    __device__ void weigh(const Walk &walk, Sums &scores, Running &running) const {
        Visible visible[kRows];
#pragma unroll
        for (unsigned i = 0; i < kRows; ++i) {
            visible[i] = visible_to(walk, team + kTeams * i);
        }
        scale(visible, scores);
        Least least;
#pragma unroll
        for (unsigned i = 0; i < kRows; ++i) {
            float maximum = -__builtin_inff();
#pragma unroll
            for (unsigned j = 0; j < 8; ++j) {
                maximum = __builtin_fmaxf(maximum, scores[i][j]); // NaN never wins
            }
            for (int by = 1; by < static_cast<int>(kScoreLanes); by *= 2) {
                maximum =
                    __builtin_fmaxf(maximum, __shfl_xor_sync(kAllLanes, maximum, by * kLaneStep));
            }
            maximum = add(maximum, 0.0F); // a zero becomes +0

            // p is 0 where no slot is visible, because exp(-infinity) is. If all that are visible
            // have -infinity or NaN, each p is NaN, as is the output.
            const float base = visible[i].any ? maximum : 0.0F;
#pragma unroll
            for (unsigned j = 0; j < 8; ++j) {
                scores[i][j] = add(scores[i][j], -base);
            }
            exp_below(scores[i]);
            float lanes[2] = {}; // of the sum (C4): this lane and the one 8 higher
            float *to = weights + (team + kTeams * i) * kScoreStride + lane;
#pragma unroll
            for (unsigned j = 0; j < 8; ++j) {
                const float p = rounded_to_bf16(scores[i][j]);
                lanes[j % 2] = add(lanes[j % 2], p);
                least.add(p);
                to[j * kScoreLanes] = p;
            }
            float sum = add(lanes[0], lanes[1]);
            for (int by = static_cast<int>(kScoreLanes) / 2; by > 0; by /= 2) {
                sum = add(sum, __shfl_xor_sync(kAllLanes, sum, by * kLaneStep));
            }
            const Merged by = merge_maxima(running.maximum[i], maximum);
            const float merged = merge_sums(running.sum[i], sum, by);
            const bool any = visible[i].any; // else o stays
            running.maximum[i] = any ? by.maximum : running.maximum[i];
            running.sum[i] = any ? merged : running.sum[i];
            running.alpha[i] = any ? by.alpha : 1.0F;
            running.beta[i] = any ? by.beta : 0.0F;
        }
        running.least = __reduce_min_sync(kAllLanes, least.key);
        __syncwarp(); // the warp's weights are complete
    }

    __device__ void merge(unsigned column, const Sums &total, const Running &running) const {
        const unsigned width = padded(task.head_dim);
#pragma unroll
        for (unsigned i = 0; i < kRows; ++i) {
            const float alpha = running.alpha[i], beta = running.beta[i];
#pragma unroll
            for (unsigned half = 0; half < 2; ++half) {
                const unsigned at = column + 4 * lane + half * 32;
                const bool exists = at < width;
                float share[4];
#pragma unroll
                for (unsigned j = 0; j < 4; ++j) {
                    share[j] = add(total[i][half * 4 + j], 0.0F);
                }
                auto &o = *reinterpret_cast<float4 *>(output + (team + kTeams * i) * width +
                                                      (exists ? at : 0));
                const float4 old = exists ? o : float4{0.0F, 0.0F, 0.0F, 0.0F};
                Smallest smallest;
                const float4 now = {smallest.merged(old.x, share[0], alpha, beta),
                                    smallest.merged(old.y, share[1], alpha, beta),
                                    smallest.merged(old.z, share[2], alpha, beta),
                                    smallest.merged(old.w, share[3], alpha, beta)};
                if (exists & !smallest.exact(alpha, beta)) { // small and slow
#pragma unroll 1
                    for (unsigned j = 0; j < 4; ++j) {
                        float &own = reinterpret_cast<float *>(&o)[j];
                        const float x = j == 0   ? share[0]
                                        : j == 1 ? share[1]
                                        : j == 2 ? share[2]
                                                 : share[3];
                        own = c2_fma(x, beta, c2_mul(own, alpha));
                    }
                } else if (exists) {
                    o = now;
                }
            }
        }
    }

    __device__ void finish(const Running &running) const {
        const unsigned pairs = static_cast<unsigned>(task.head_dim / 2);
#pragma unroll
        for (unsigned i = 0; i < kRows; ++i) {
            if (lane == 0) {
                state.sum[team + kTeams * i] = running.sum[i];
            }
        }
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

    // Visits all pages.
    __device__ void attend(Walk &walk, Running &running) const {
        const uint16_t *rows[kRightPieces];
#pragma unroll
        for (unsigned n = 0; n < kRightPieces; ++n) {
            rows[n] = query_row(n);
        }
        Pieces pieces;
        Sums total = {};
        walk.begin();
        if (!walk.ended) {
            load(walk, rows, pieces);
        }
        for (Turn turn; !walk.ended; turn.advance()) {
            store(walk, pieces, turn);
            const Walk present = walk;
            walk.advance();
            __syncthreads(); // the chunk is stored; everyone has read the one before it
            if (threadIdx.x == 0) {
                state.left[turn.before()] = 0xFFFFFFFFU; // used again after the next barrier
            }
            if (!walk.ended) {
                load(walk, rows, pieces);
            }
            if (present.is_first()) {
#pragma unroll
                for (unsigned i = 0; i < kRows * 8; ++i) {
                    total[i / 8][i % 8] = 0.0F;
                }
            }
            if (present.at_keys()) {
                multiply_keys(turn, total);
                if (present.is_last()) {
                    weigh(present, total, running);
                }
            } else {
                multiply_values(turn, present.slot(), running, total);
                if (present.is_last()) {
                    merge(present.column(), total, running);
                }
            }
        }
        finish(running);
    }
};

// Queries of a team, and blocks of a multiprocessor. Twice as many queries in half as many blocks
// took as long behind 4096 tokens, and 6 % longer for a prompt of 512, whose blocks end at
// different times; one query took longer behind 4096 (H200).
constexpr unsigned kMostRows = 2, kResident = 4;
// Every supported device gives a block of threads 99 KiB.
constexpr size_t kSharedBytes = 99 * 1024 - sizeof(State);
static_assert(shared_floats(1, kDeviceHeadDimMax) * sizeof(float) <= kSharedBytes);

// Returns the rank of this block of threads, by which its work becomes less. The first blocks are
// given to the multiprocessors in turn, so every second round of them is reversed: a multiprocessor
// that has one of the longest tiles gets one of the shortest beside it.
__device__ unsigned rank_of_block(unsigned processors) {
    const unsigned round = blockIdx.x / processors, turn = blockIdx.x % processors;
    const unsigned first = round * processors, left = gridDim.x - first;
    const unsigned count = left < processors ? left : processors;
    return first + (round % 2 == 0 ? turn : count - 1 - turn);
}

template <unsigned kRows>
__global__ void __launch_bounds__(kThreads, kResident)
    tiles_kernel(DeviceAttention task, const DeviceTile *tiles, unsigned blocks,
                 unsigned processors) {
    wait_for_previous();
    __shared__ State state;
    const auto kv_heads = static_cast<unsigned>(task.kv_heads);
    const unsigned rank = rank_of_block(processors), of_tile = kv_heads * blocks;
    // The longest tiles begin first.
    const DeviceTile tile = tiles[gridDim.x / of_tile - 1 - rank / of_tile];
    const auto group_heads = static_cast<unsigned>(task.heads / task.kv_heads);
    const unsigned begin = rank % blocks * Queries<kRows>::kQueries;
    if (begin >= tile.count * group_heads) {
        return;
    }
    const unsigned left = tile.count * group_heads - begin;
    constexpr unsigned kQueries = Queries<kRows>::kQueries;
    auto *shared = dynamic_shared<float>();
    float *right = shared + 2 * kLeft, *weights = right + 2 * kQueries * kStride;
    const Queries<kRows> queries{task,
                                 tile,
                                 group_heads,
                                 rank / blocks % kv_heads,
                                 begin,
                                 left < kQueries ? left : kQueries,
                                 state,
                                 shared,
                                 right,
                                 weights,
                                 weights + kQueries * kScoreStride};
    queries.prepare();
    const auto key_chunks = static_cast<unsigned>((task.head_dim + kTerms - 1) / kTerms);
    const auto columns = static_cast<unsigned>((task.head_dim + kColumns - 1) / kColumns);
    Walk walk = {state.seen, key_chunks, key_chunks + 2 * columns};
    typename Queries<kRows>::Running running;
    running.least = 0xFFFFFFFFU;
#pragma unroll
    for (unsigned i = 0; i < kRows; ++i) {
        running.maximum[i] = -__builtin_inff();
        running.sum[i] = 0.0F;
        running.alpha[i] = 1.0F, running.beta[i] = 0.0F;
    }
    queries.attend(walk, running);
}

} // namespace

void attend_tiles(DeviceQueue *queue, const DeviceAttention &task, const DeviceTile *tiles,
                  size_t tile_count) {
    // Uses as few blocks of threads as can take all queries of a tile, and as few rows in each as
    // possible.
    unsigned most_rows = kMostRows;
    while (shared_floats(most_rows, task.head_dim) * sizeof(float) > kSharedBytes) {
        --most_rows;
    }
    const auto most = static_cast<unsigned>(kDeviceTileRows * task.heads / task.kv_heads);
    const unsigned blocks = (most + most_rows * kTeams - 1) / (most_rows * kTeams);
    const unsigned rows = (most + blocks * kTeams - 1) / (blocks * kTeams);
    const Launch shape = {dim3(static_cast<unsigned>(tile_count * task.kv_heads * blocks)),
                          kThreads, shared_floats(rows, task.head_dim) * sizeof(float)};
    static_assert(kMostRows == 2);
    enqueue(queue, shape, rows == 1 ? tiles_kernel<1> : tiles_kernel<2>, task, tiles, blocks,
            multiprocessors(queue));
}

} // namespace stasis::kernels::device
