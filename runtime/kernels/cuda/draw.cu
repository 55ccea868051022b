// Drawing a token on the device (C7): the first weights of a row of logits in their order, without
// sorting them. Weights are integers, so their sums are the same in any order; a prefix of the
// order (logit descending, token ascending) is told by its last candidate, which is found by the
// sums of ever smaller ranges of logits: sixteenths below the best, then the digits of the logit's
// bits, then, of equal logits, by counting tokens. One block of threads for a row.
#include "runtime/kernels/cuda/functions.h"
#include "runtime/kernels/cuda/kernels.h"

namespace stasis::kernels::device {

namespace {

constexpr unsigned kThreads = 1024;
constexpr unsigned kWarps = kThreads / kWarp;
constexpr float kExponentMin = -28.0F;   // below it a weight is 0
constexpr float kWeightOne = 0x1p40F;    // of the best candidate
constexpr unsigned kSteps = 28 * 16 + 1; // sixteenths below the best
constexpr unsigned kDigits = 256;
constexpr float kLargest = 0x1.fffffep+127F;

__device__ inline uint64_t high_product(uint64_t a, uint64_t b) {
#ifdef __CUDA_ARCH__
    return __umul64hi(a, b);
#else
    __extension__ using Wide = unsigned __int128;
    return static_cast<uint64_t>(Wide{a} * b >> 64);
#endif
}

// The share of a total, at least 1: ceil(total * fraction / 2^32), the product exact.
__device__ uint64_t share_of(uint64_t total, uint64_t fraction) {
    const uint64_t low = total * fraction, sum = low + 0xFFFFFFFFU;
    const uint64_t high = high_product(total, fraction) + (sum < low ? 1 : 0);
    const uint64_t share = high << 32 | sum >> 32;
    return share == 0 ? 1 : share;
}

// Bits that are ordered as the numbers are. Of -0 as of +0: they are equal.
__device__ inline uint32_t ordered(float x) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, add(x, 0.0F));
    return (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
}

// What a block's threads work with together.
struct Shared {
    unsigned long long sums[kSteps > kDigits ? kSteps : kDigits];
    unsigned long long of_warp[kWarps];
    unsigned long long answer;
    uint32_t found;
};

// The candidates that are left: those not behind `last`, whose weight is not below `least`.
struct Left {
    const float *scaled; // logits over the temperature
    uint32_t vocabulary;
    float best;    // of them
    bool counting; // every candidate counts as one, also those that weigh nothing
    uint64_t least;
    uint32_t last_key, last_token;

    __device__ bool has(float l, uint32_t token) const {
        const uint32_t key = ordered(l);
        const bool behind = key < last_key || (key == last_key && token > last_token);
        return !behind && add(l, -best) >= kExponentMin;
    }
    // Of a candidate with that logit.
    __device__ uint64_t amount(float l) const {
        const auto w = static_cast<uint64_t>(mul(exp(add(l, -best)), kWeightOne));
        return counting ? 1 : w < least ? 0 : w;
    }
    __device__ unsigned step(float l) const {
        return static_cast<unsigned>(mul(add(best, -l), 16.0F));
    }
};

// In `sums` up to `ranges`, from the first (`rising`) or the last on: the range in which the sum
// reaches `wanted`; what is wanted of it alone is left in `wanted`.
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
        unsigned long long before = own; // of the lanes up to this one
        for (unsigned by = 1; by < kWarp; by *= 2) {
            const unsigned long long other =
                __shfl_sync(kAllLanes, before, static_cast<int>((threadIdx.x - by) % kWarp));
            before += threadIdx.x >= by ? other : 0;
        }
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

// Adds up the amounts by range(l), which is below `ranges` or kElsewhere, in `sums`.
constexpr unsigned kElsewhere = 0xFFFFFFFFU;
template <typename Range>
__device__ void add_up(const Left &left, unsigned ranges, Shared &shared, const Range &range) {
    for (unsigned i = threadIdx.x; i < ranges; i += kThreads) {
        shared.sums[i] = 0;
    }
    __syncthreads();
    for (uint32_t token = threadIdx.x; token < left.vocabulary; token += kThreads) {
        const float l = left.scaled[token];
        const unsigned at = left.has(l, token) ? range(l) : kElsewhere;
        if (at != kElsewhere) {
            atomicAdd(&shared.sums[at], static_cast<unsigned long long>(left.amount(l)));
        }
    }
    __syncthreads();
}

// Of the tokens with that logit, which all weigh the same, the one that is number `index`.
__device__ uint32_t find_token(const Left &left, uint32_t key, uint64_t index, Shared &shared) {
    // Each thread has a stretch of tokens, so that the counts are in their order.
    const uint32_t stretch = (left.vocabulary + kThreads - 1) / kThreads;
    const uint32_t begin = threadIdx.x * stretch;
    const uint32_t end = begin + stretch < left.vocabulary ? begin + stretch : left.vocabulary;
    const auto is_one = [&](uint32_t token) {
        const float l = left.scaled[token];
        return ordered(l) == key && left.has(l, token);
    };
    unsigned own = 0;
    for (uint32_t token = begin; token < end; ++token) {
        own += is_one(token) ? 1 : 0;
    }
    unsigned before = own; // of the warp's threads, this one included
    for (unsigned by = 1; by < kWarp; by *= 2) {
        const unsigned lane = threadIdx.x % kWarp;
        const unsigned other =
            __shfl_sync(kAllLanes, before, static_cast<int>((lane - by) % kWarp));
        before += lane >= by ? other : 0;
    }
    if (threadIdx.x % kWarp == kWarp - 1) {
        shared.of_warp[threadIdx.x / kWarp] = before;
    }
    __syncthreads();
    uint64_t first = before - own;
    for (unsigned i = 0; i < threadIdx.x / kWarp; ++i) {
        first += shared.of_warp[i];
    }
    if (index >= first && index < first + own) {
        uint64_t skip = index - first;
        for (uint32_t token = begin; token < end; ++token) {
            if (is_one(token) && skip-- == 0) {
                shared.found = token;
                break;
            }
        }
    }
    __syncthreads();
    const uint32_t found = shared.found;
    __syncthreads();
    return found;
}

struct End {
    uint32_t key, token;
};

// The last candidate of the shortest prefix whose amounts reach wanted_of(their total), which is at
// least 1 and at most that.
template <typename Wanted>
__device__ End prefix_end(const Left &left, Shared &shared, const Wanted &wanted_of) {
    add_up(left, kSteps, shared, [&](float l) { return left.step(l); });
    uint64_t total = 0;
    for (unsigned i = threadIdx.x % kWarp; i < kSteps; i += kWarp) {
        total += shared.sums[i];
    }
    for (unsigned by = kWarp / 2; by > 0; by /= 2) {
        total += __shfl_xor_sync(kAllLanes, static_cast<unsigned long long>(total),
                                 static_cast<int>(by));
    }
    uint64_t wanted = wanted_of(total);
    const unsigned step = find_range(kSteps, true, wanted, shared);
    uint32_t key = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        add_up(left, kDigits, shared, [&](float l) {
            const uint32_t bits = ordered(l);
            const bool same = shift == 24 || bits >> (shift + 8) == key >> (shift + 8);
            return same && left.step(l) == step ? bits >> shift & 0xFFU : kElsewhere;
        });
        key |= find_range(kDigits, false, wanted, shared) << shift;
    }
    // The logit that the key stands for, for what one of its tokens amounts to.
    const float l = __builtin_bit_cast(float, (key >> 31) != 0 ? key & 0x7FFFFFFFU : ~key);
    return {key, find_token(left, key, (wanted - 1) / left.amount(l), shared)};
}

// Leaves no more than that prefix.
__device__ void cut(Left &left, const End &end) {
    left.last_key = end.key;
    left.last_token = end.token;
}

// The best token, and whether every logit is finite once rounded (C9).
__device__ uint32_t best_token(const DeviceDraw &task, Shared &shared, bool &finite) {
    uint64_t best = 0; // key, then the token counted down: the first of equal ones is the largest
    bool own_finite = true;
    for (uint32_t token = threadIdx.x; token < task.vocabulary; token += kThreads) {
        const float l = task.logits[token];
        own_finite = own_finite && (f32_to_bf16(l) & 0x7F80U) != 0x7F80U;
        const uint64_t here = uint64_t{ordered(l)} << 32 | (0xFFFFFFFFU - token);
        best = here > best ? here : best;
    }
    finite = __syncthreads_or(own_finite ? 0 : 1) == 0;
    for (unsigned by = kWarp / 2; by > 0; by /= 2) {
        const uint64_t other =
            __shfl_xor_sync(kAllLanes, static_cast<unsigned long long>(best), static_cast<int>(by));
        best = other > best ? other : best;
    }
    if (threadIdx.x % kWarp == 0) {
        shared.of_warp[threadIdx.x / kWarp] = best;
    }
    __syncthreads();
    for (unsigned i = 0; i < kWarps; ++i) {
        best = shared.of_warp[i] > best ? shared.of_warp[i] : best;
    }
    return 0xFFFFFFFFU - static_cast<uint32_t>(best);
}

// Of a logit, as the host divides and bounds it.
__device__ float scaled(float logit, float temperature) {
    const float l = c2_div(logit, temperature);
    const float above = l > kLargest ? kLargest : l;
    return above < -kLargest ? -kLargest : above;
}

__device__ uint32_t draw_token(const DeviceDraw &task, uint32_t best, uint64_t random,
                               Shared &shared) {
    const DeviceSampler sampler = *task.sampler;
    if (sampler.temperature == 0.0F) {
        return best;
    }
    for (size_t token = threadIdx.x; token < task.vocabulary; token += kThreads) {
        task.scaled[token] = scaled(task.logits[token], sampler.temperature);
    }
    Left left{task.scaled,
              static_cast<uint32_t>(task.vocabulary),
              scaled(task.logits[best], sampler.temperature),
              true,
              0,
              0,
              0xFFFFFFFFU};
    __syncthreads();
    if (sampler.top_k > 0) {
        cut(left, prefix_end(left, shared, [&](uint64_t total) {
                return total < sampler.top_k ? total : sampler.top_k;
            }));
    }
    left.counting = false;
    left.least = sampler.least_weight;
    if (sampler.top_p < uint64_t{1} << 32) {
        cut(left, prefix_end(left, shared,
                             [&](uint64_t total) { return share_of(total, sampler.top_p); }));
    }
    return prefix_end(left, shared, [&](uint64_t total) { return high_product(random, total) + 1; })
        .token;
}

__global__ void __launch_bounds__(kThreads, 1) draw_kernel(DeviceDraw task) {
    __shared__ Shared shared;
    const uint32_t step = *task.step;
    bool finite = false;
    const uint32_t best = best_token(task, shared, finite);
    const uint32_t failed = *task.failed;
    for (size_t i = threadIdx.x; i < task.hidden_size; i += kThreads) {
        task.hiddens[step * task.hidden_size + i] = task.hidden[i];
    }
    // What is not finite draws the first token: the host looks no further than that.
    const bool good = finite && failed == 0xFFFFFFFFU;
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
    enqueue(queue, {1, kThreads}, draw_kernel, task);
}

} // namespace

void add_draw(DeviceTable &table) {
    table.draw = draw;
}

} // namespace stasis::kernels::device
