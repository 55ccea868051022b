// Finishing one head of a query or key (C3, C4, C6): norm, RoPE, rounding, by the lanes of a warp.
#pragma once

#include "runtime/kernels/cuda/functions.h"

namespace stasis::kernels::device {

// Copies a head to shared memory. Interleaved pairs are separated: one element at i, the other at i
// + n / 2.
__device__ inline void fetch_head(const float *from, unsigned n, bool interleaved, float *x) {
    const unsigned lane = threadIdx.x % kWarp;
    for (unsigned i = lane; i < n; i += kWarp) {
        x[interleaved ? i / 2 + i % 2 * (n / 2) : i] = __ldcg(from + i);
    }
    __syncwarp();
}

// Returns 1 / sqrt(mean(x^2) + eps) to every lane. Both halves of the warp compute the same. The
// terms of a sum may be exchanged, so after each step of the tree all lanes hold its result.
__device__ inline float head_norm_scale(const float *x, unsigned n, float eps) {
    float sum = 0.0F;
    for (unsigned i = threadIdx.x % kSumLanes; i < n; i += kSumLanes) {
        sum = fma(x[i], x[i], sum);
    }
    for (unsigned half = kSumLanes / 2; half > 0; half /= 2) {
        sum = add(sum, __shfl_xor_sync(kAllLanes, sum, static_cast<int>(half)));
    }
    return div(1.0F, sqrt(add(c2_div(sum, static_cast<float>(n)), eps)));
}

// Applies the norm (if there is one), RoPE and rounding to the head in x; calls put(i, bf16) for
// the lane's elements. Returns whether these are finite.
template <typename Put>
__device__ bool finish_head(const float *x, unsigned n, float eps, const float *norm,
                            const float *cosine, const float *sine, const Put &put) {
    const float scale = norm == nullptr ? 1.0F : head_norm_scale(x, n, eps);
    const unsigned half = n / 2;
    bool finite = true;
    for (unsigned i = threadIdx.x % kWarp; i < half; i += kWarp) {
        float a = x[i], b = x[i + half];
        if (norm != nullptr) {
            a = c2_mul(c2_mul(a, scale), norm[i]);
            b = c2_mul(c2_mul(b, scale), norm[i + half]);
        }
        const float c = cosine[i], s = sine[i];
        const uint16_t first = f32_to_bf16(c2_fma(a, c, -c2_mul(b, s)));
        const uint16_t second = f32_to_bf16(c2_fma(b, c, c2_mul(a, s)));
        put(i, first);
        put(i + half, second);
        finite = finite && is_finite_bf16(first) && is_finite_bf16(second);
    }
    return finite;
}

} // namespace stasis::kernels::device
