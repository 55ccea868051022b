// Draws a token on the device (C7) from a row of logits, without sorting it. Weights are integers,
// so their sums are the same in any order. A prefix of the order (logit descending, token
// ascending) is identified by its last candidate. That candidate is found by sums over ever smaller
// ranges of candidates: sixteenths below the best logit, then the digits of the rank. Many blocks
// of threads find the best candidate, add up every sixteenth, and store the candidates of each
// sixteenth side by side. Then one block examines the few sixteenths in which a prefix ends.
//
// At 262144 tokens (1 MiB) each of the first three kernels reads a row over 128 multiprocessors,
// some 3 us. The last one passes 9 times for each of top-k, top-p and the draw over one sixteenth:
// a few thousand candidates in shared memory, 0.5 us, unless the row is flat. This is some 20 us in
// all. One block of threads alone would need 22 passes over the whole row, 23 MB at some 80 GB/s.
// Estimated, not measured.
#include "runtime/kernels/cuda/functions.h"
#include "runtime/kernels/cuda/kernels.h"

namespace stasis::kernels::device {

namespace {

constexpr unsigned kThreads = 512;
constexpr unsigned kWarps = kThreads / kWarp;
constexpr float kExponentMin = -28.0F;   // below it a weight is 0
constexpr float kWeightOne = 0x1p40F;    // of the best candidate
constexpr unsigned kSteps = 28 * 16 + 1; // sixteenths below the best
constexpr unsigned kDigits = 256;
constexpr uint32_t kStretch = 2048; // tokens of a block, if kBlocksMost take all
constexpr unsigned kBlocksMost = 128;
constexpr uint32_t kFew = 4096; // candidates that fit in shared memory
constexpr float kLargest = 0x1.fffffep+127F;

__device__ inline uint64_t high_product(uint64_t a, uint64_t b) {
#ifdef __CUDA_ARCH__
    return __umul64hi(a, b);
#else
    __extension__ using Wide = unsigned __int128;
    return static_cast<uint64_t>(Wide{a} * b >> 64);
#endif
}

// Returns the share of a total, at least 1: ceil(total * fraction / 2^32), the product exact.
__device__ uint64_t share_of(uint64_t total, uint64_t fraction) {
    const uint64_t low = total * fraction, sum = low + 0xFFFFFFFFU;
    const uint64_t high = high_product(total, fraction) + (sum < low ? 1 : 0);
    const uint64_t share = high << 32 | sum >> 32;
    return share == 0 ? 1 : share;
}

// Returns bits that are ordered as the numbers are; -0 gives the bits of +0, to which it is equal.
__device__ inline uint32_t ordered(float x) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, add(x, 0.0F));
    return (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
}

// Returns a logit over the temperature, divided and bounded as on the host.
__device__ float scaled(float logit, float temperature) {
    const float l = c2_div(logit, temperature);
    const float above = l > kLargest ? kLargest : l;
    return above < -kLargest ? -kLargest : above;
}

// A token that may be drawn; `logit` is over the temperature. Candidates of higher rank come first.
struct alignas(8) Candidate {
    float logit;
    uint32_t token;
};
__device__ inline uint64_t rank_of(float logit, uint32_t token) {
    return uint64_t{ordered(logit)} << 32 | (0xFFFFFFFFU - token);
}
__device__ inline uint32_t token_of(uint64_t rank) {
    return 0xFFFFFFFFU - static_cast<uint32_t>(rank);
}

// The beginning of DeviceDraw::room. The candidates, [vocabulary], follow it, those of a step side
// by side.
struct Room {
    unsigned long long best[kBlocksMost]; // rank of the best of each block's tokens, unscaled
    uint32_t finite[kBlocksMost];         // 1: all logits of the block are finite once rounded (C9)
    unsigned long long weights[kSteps];   // sum over each step's candidates of enough weight
    uint32_t counts[kSteps];              // all candidates of each step
    uint32_t before[kBlocksMost][kSteps]; // candidates of a step that precede a block's own
};
constexpr size_t kRoomBytes = draw_room_bytes(0);
static_assert(sizeof(Room) <= kRoomBytes);

__device__ Room &room_of(const DeviceDraw &task) {
    return *static_cast<Room *>(task.room);
}
__device__ Candidate *candidates_of(const DeviceDraw &task) {
    return reinterpret_cast<Candidate *>(static_cast<char *>(task.room) + kRoomBytes);
}

// A row's best logit and temperature, from which steps and weights follow.
struct Row {
    float temperature, best;

    __device__ bool has(float l) const { return add(l, -best) >= kExponentMin; }
    __device__ unsigned step(float l) const {
        return static_cast<unsigned>(mul(add(best, -l), 16.0F));
    }
    __device__ uint64_t weight(float l, uint64_t least) const {
        const auto w = static_cast<uint64_t>(mul(exp(add(l, -best)), kWeightOne));
        return w < least ? 0 : w;
    }
};

__device__ uint64_t larger_of_warp(uint64_t rank) {
    for (unsigned by = kWarp / 2; by > 0; by /= 2) {
        const uint64_t other =
            __shfl_xor_sync(kAllLanes, static_cast<unsigned long long>(rank), static_cast<int>(by));
        rank = other > rank ? other : rank;
    }
    return rank;
}

// Returns the best rank of a row whose tokens `blocks` blocks have read, to every thread.
__device__ uint64_t best_rank(const Room &room, unsigned blocks) {
    uint64_t best = 0;
    for (unsigned i = threadIdx.x % kWarp; i < blocks; i += kWarp) {
        best = room.best[i] > best ? room.best[i] : best;
    }
    return larger_of_warp(best);
}

__device__ Row row_of(const DeviceDraw &task, uint64_t best) {
    const float temperature = task.sampler->temperature;
    return {temperature, scaled(task.logits[token_of(best)], temperature)};
}

// The tokens of this block: `stretch` of them, or the remaining ones.
struct Tokens {
    uint32_t begin, end;
};
__device__ Tokens tokens_of(const DeviceDraw &task, uint32_t stretch) {
    const auto vocabulary = static_cast<uint32_t>(task.vocabulary);
    const uint32_t begin = blockIdx.x * stretch;
    return {begin, vocabulary - begin < stretch ? vocabulary : begin + stretch};
}

__global__ void __launch_bounds__(kThreads, 1) best_kernel(DeviceDraw task, uint32_t stretch) {
    wait_for_previous();
    __shared__ unsigned long long of_warp[kWarps];
    Room &room = room_of(task);
    for (unsigned i = threadIdx.x; blockIdx.x == 0 && i < kSteps; i += kThreads) {
        room.weights[i] = 0, room.counts[i] = 0; // for weigh_kernel
    }

    // Each thread takes the best of its tokens; then each warp, then the first warp, the block's.
    const Tokens own = tokens_of(task, stretch);
    uint64_t best = 0;
    bool finite = true;
    for (uint32_t token = own.begin + threadIdx.x; token < own.end; token += kThreads) {
        const float logit = task.logits[token];
        finite = finite && is_finite_bf16(f32_to_bf16(logit));
        const uint64_t rank = rank_of(logit, token);
        best = rank > best ? rank : best;
    }
    best = larger_of_warp(best);
    if (threadIdx.x % kWarp == 0) {
        of_warp[threadIdx.x / kWarp] = best;
    }
    finite = __syncthreads_or(finite ? 0 : 1) == 0;
    if (threadIdx.x < kWarp) {
        best = larger_of_warp(threadIdx.x < kWarps ? of_warp[threadIdx.x] : 0);
        if (threadIdx.x == 0) {
            room.best[blockIdx.x] = best, room.finite[blockIdx.x] = finite ? 1 : 0;
        }
    }
}

__global__ void __launch_bounds__(kThreads, 1) weigh_kernel(DeviceDraw task, uint32_t stretch) {
    wait_for_previous();
    __shared__ unsigned long long weights[kSteps];
    __shared__ uint32_t counts[kSteps];
    if (task.sampler->temperature == 0.0F) {
        return;
    }
    for (unsigned i = threadIdx.x; i < kSteps; i += kThreads) {
        weights[i] = 0, counts[i] = 0;
    }
    Room &room = room_of(task);
    const Row row = row_of(task, best_rank(room, gridDim.x));
    const uint64_t least = task.sampler->least_weight;
    const Tokens own = tokens_of(task, stretch);
    __syncthreads();
    for (uint32_t token = own.begin + threadIdx.x; token < own.end; token += kThreads) {
        const float l = scaled(task.logits[token], row.temperature);
        if (row.has(l)) {
            const uint64_t weight = row.weight(l, least);
            atomicAdd(&counts[row.step(l)], 1U);
            if (weight != 0) {
                atomicAdd(&weights[row.step(l)], static_cast<unsigned long long>(weight));
            }
        }
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < kSteps; i += kThreads) {
        room.before[blockIdx.x][i] = counts[i] == 0 ? 0 : atomicAdd(&room.counts[i], counts[i]);
        if (weights[i] != 0) {
            atomicAdd(&room.weights[i], weights[i]);
        }
    }
}

// Computes the begin of each step's candidates. Ends with a barrier.
__device__ void find_starts(const uint32_t *counts, uint32_t *starts) {
    constexpr unsigned kOwn = (kSteps + kWarp - 1) / kWarp;
    if (threadIdx.x < kWarp) {
        uint32_t own = 0;
        for (unsigned i = threadIdx.x * kOwn; i < (threadIdx.x + 1) * kOwn && i < kSteps; ++i) {
            own += counts[i];
        }
        uint32_t before = own; // sum over the lanes up to this one
        for (unsigned by = 1; by < kWarp; by *= 2) {
            const uint32_t other = __shfl_up_sync(kAllLanes, before, by);
            before += threadIdx.x >= by ? other : 0;
        }
        before -= own;
        for (unsigned i = threadIdx.x * kOwn; i < (threadIdx.x + 1) * kOwn && i < kSteps; ++i) {
            starts[i] = before;
            before += counts[i];
        }
    }
    __syncthreads();
}

__global__ void __launch_bounds__(kThreads, 1) place_kernel(DeviceDraw task, uint32_t stretch) {
    wait_for_previous();
    __shared__ uint32_t next[kSteps]; // position of each step's next candidate
    if (task.sampler->temperature == 0.0F) {
        return;
    }
    const Room &room = room_of(task);
    find_starts(room.counts, next);
    for (unsigned i = threadIdx.x; i < kSteps; i += kThreads) {
        next[i] += room.before[blockIdx.x][i];
    }
    const Row row = row_of(task, best_rank(room, gridDim.x));
    const Tokens own = tokens_of(task, stretch);
    Candidate *candidates = candidates_of(task);
    __syncthreads();
    for (uint32_t token = own.begin + threadIdx.x; token < own.end; token += kThreads) {
        const float l = scaled(task.logits[token], row.temperature);
        if (row.has(l)) {
            candidates[atomicAdd(&next[row.step(l)], 1U)] = {l, token};
        }
    }
}

// --- The last kernel: one block. ---

struct Shared {
    uint32_t counts[kSteps], starts[kSteps]; // of each step's candidates
    unsigned long long sums[kSteps];         // of the ranges examined
    Candidate few[kFew];                     // of a step examined repeatedly
    unsigned long long answer;
    uint32_t found;
};
static_assert(kDigits <= kSteps);

// A prefix of the order: its last candidate's step and rank.
struct Prefix {
    unsigned step;
    uint64_t rank;
};

// The remaining candidates: a prefix of all.
struct Left {
    const Room &room;
    const Candidate *candidates;
    Row row;
    bool counting;  // every candidate counts as one, also those of weight 0
    uint64_t least; // smaller weights count as 0
    Prefix prefix;

    __device__ uint64_t amount(float l) const { return counting ? 1 : row.weight(l, least); }
};

// Adds up the amounts of candidates in `sums` by range(rank), which is below `ranges` or
// kElsewhere.
constexpr unsigned kElsewhere = 0xFFFFFFFFU;
template <typename Range>
__device__ void add_up(const Left &left, const Candidate *candidates, uint32_t count,
                       unsigned ranges, Shared &shared, const Range &range) {
    for (unsigned i = threadIdx.x; i < ranges; i += kThreads) {
        shared.sums[i] = 0;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < count; i += kThreads) {
        const Candidate own = candidates[i];
        const uint64_t rank = rank_of(own.logit, own.token);
        const unsigned at = rank < left.prefix.rank ? kElsewhere : range(rank);
        if (at != kElsewhere) {
            atomicAdd(&shared.sums[at], static_cast<unsigned long long>(left.amount(own.logit)));
        }
    }
    __syncthreads();
}

// Returns the range of `sums`, below `ranges`, in which the sum reaches `wanted`, from the first
// (`rising`) or the last range on. `wanted` becomes the remaining amount within that range.
__device__ unsigned find_range(unsigned ranges, bool rising, uint64_t &wanted, Shared &shared) {
    const unsigned stretch = (ranges + kWarp - 1) / kWarp;
    const auto sum_at = [&](unsigned i) {
        return i < ranges ? shared.sums[rising ? i : ranges - 1 - i] : 0;
    };
    if (threadIdx.x < kWarp) {
        unsigned long long own = 0;
        for (unsigned i = 0; i < stretch; ++i) {
            own += sum_at(threadIdx.x * stretch + i);
        }
        unsigned long long before = own; // sum over the lanes up to this one
        for (unsigned by = 1; by < kWarp; by *= 2) {
            const unsigned long long other = __shfl_up_sync(kAllLanes, before, by);
            before += threadIdx.x >= by ? other : 0;
        }

        // At most one lane holds the place where the sum reaches `wanted`.
        before -= own;
        if (before < wanted && wanted - before <= own) {
            unsigned i = threadIdx.x * stretch;
            uint64_t rest = wanted - before;
            while (sum_at(i) < rest) {
                rest -= sum_at(i++);
            }
            shared.found = rising ? i : ranges - 1 - i;
            shared.answer = rest;
        }
    }
    __syncthreads();
    wanted = shared.answer;
    const unsigned found = shared.found;
    __syncthreads();
    return found;
}

// Stores the amounts of all steps in `sums`. Returns their total.
__device__ uint64_t sum_steps(const Left &left, Shared &shared) {
    const unsigned last = left.prefix.step; // the prefix may end inside this step
    add_up(left, left.candidates + shared.starts[last], shared.counts[last], 1, shared,
           [](uint64_t) { return 0U; });
    const unsigned long long of_last = shared.sums[0];
    __syncthreads();
    for (unsigned i = threadIdx.x; i < kSteps; i += kThreads) {
        const unsigned long long all = left.counting ? shared.counts[i] : left.room.weights[i];
        shared.sums[i] = i < last ? all : i == last ? of_last : 0;
    }
    __syncthreads();
    unsigned long long total = 0;
    for (unsigned i = threadIdx.x % kWarp; i < kSteps; i += kWarp) {
        total += shared.sums[i];
    }
    for (unsigned by = kWarp / 2; by > 0; by /= 2) {
        total += __shfl_xor_sync(kAllLanes, total, static_cast<int>(by));
    }
    return total;
}

// Returns the shortest prefix whose amounts reach wanted_of(their total), which is at least 1 and
// at most the total.
template <typename Wanted>
__device__ Prefix find_prefix(const Left &left, Shared &shared, const Wanted &wanted_of) {
    uint64_t wanted = wanted_of(sum_steps(left, shared));
    const unsigned step = find_range(kSteps, true, wanted, shared);
    const uint32_t count = shared.counts[step];
    const Candidate *candidates = left.candidates + shared.starts[step];
    if (count <= kFew) {
        for (uint32_t i = threadIdx.x; i < count; i += kThreads) {
            shared.few[i] = candidates[i]; // a barrier follows
        }
        candidates = shared.few;
    }
    // Fixes the rank digit by digit, from the highest on.
    uint64_t rank = 0;
    for (int shift = 56; shift >= 0; shift -= 8) {
        add_up(left, candidates, count, kDigits, shared, [&](uint64_t of_one) {
            const bool same = shift == 56 || of_one >> (shift + 8) == rank >> (shift + 8);
            return same ? static_cast<unsigned>(of_one >> shift & 0xFFU) : kElsewhere;
        });
        rank |= uint64_t{find_range(kDigits, false, wanted, shared)} << shift;
    }
    return {step, rank};
}

__device__ uint32_t draw_token(const DeviceDraw &task, uint64_t best, uint64_t random,
                               Shared &shared) {
    const DeviceSampler sampler = *task.sampler;
    if (sampler.temperature == 0.0F) {
        return token_of(best);
    }
    const Room &room = room_of(task);
    for (unsigned i = threadIdx.x; i < kSteps; i += kThreads) {
        shared.counts[i] = room.counts[i];
    }
    __syncthreads();
    find_starts(shared.counts, shared.starts);
    Left left{room, candidates_of(task), row_of(task, best), true, 0, {kSteps - 1, 0}};

    // Top-k counts candidates; top-p and the draw add weights.
    if (sampler.top_k > 0) {
        left.prefix = find_prefix(left, shared, [&](uint64_t total) {
            return total < sampler.top_k ? total : sampler.top_k;
        });
    }
    left.counting = false;
    left.least = sampler.least_weight;
    if (sampler.top_p < uint64_t{1} << 32) {
        left.prefix = find_prefix(left, shared,
                                  [&](uint64_t total) { return share_of(total, sampler.top_p); });
    }
    return token_of(find_prefix(left, shared, [&](uint64_t total) {
                        return high_product(random, total) + 1;
                    }).rank);
}

__global__ void __launch_bounds__(kThreads, 1) draw_kernel(DeviceDraw task, unsigned blocks) {
    wait_for_previous();
    __shared__ Shared shared;
    const Room &room = room_of(task);
    const uint32_t step = *task.step, failed = *task.failed;
    const bool own_finite = threadIdx.x >= blocks || room.finite[threadIdx.x] != 0;
    const bool finite = __syncthreads_or(own_finite ? 0 : 1) == 0;
    for (size_t i = threadIdx.x; i < task.hidden_size; i += kThreads) {
        task.hiddens[step * task.hidden_size + i] = task.hidden[i];
    }
    // A failed row draws token 0, because the host reads no row after it.
    const bool good = finite && failed == 0xFFFFFFFFU;
    const uint64_t best = best_rank(room, blocks);
    const uint32_t token = good ? draw_token(task, best, task.random[step], shared) : 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        task.tokens[step] = token;
        task.failures[step] = finite || failed != 0xFFFFFFFFU ? failed : 0;
        *task.failed = 0xFFFFFFFFU;
        task.row->token = token;
        ++task.row->position;
        *task.step = step + 1;
    }
}

void draw(DeviceQueue *queue, const DeviceDraw &task) {
    const auto vocabulary = static_cast<uint32_t>(task.vocabulary);
    const uint32_t all = (vocabulary + kBlocksMost - 1) / kBlocksMost;
    const uint32_t stretch = all < kStretch ? kStretch : all;
    const unsigned blocks = (vocabulary + stretch - 1) / stretch;
    enqueue(queue, {blocks, kThreads}, best_kernel, task, stretch);
    enqueue(queue, {blocks, kThreads}, weigh_kernel, task, stretch);
    enqueue(queue, {blocks, kThreads}, place_kernel, task, stretch);
    // The next kernel reads the row before it waits.
    enqueue(queue, {1, kThreads, 0, true}, draw_kernel, task, blocks);
}

} // namespace

void add_draw(DeviceTable &table) {
    table.draw = draw;
}

} // namespace stasis::kernels::device
