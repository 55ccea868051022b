// Floats to the types that GGUF files store, the blocks of small integers among them. The reverse
// is runtime/kernels/reference/block.cpp; layouts: NUMERICS.md, C8. The same bytes on every
// machine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/model/gguf/types.h"

namespace stasis {

// A value from here on is none, or infinite, as an f16; scales of blocks are such.
inline constexpr float kF16Overflow = 65520.0F;

uint16_t f32_to_f16(float value); // to nearest even, denormal results included

// `count` finite values, whole blocks, below kF16Overflow in magnitude unless the type is F32 or
// BF16. In the contract's floating-point environment.
//
// F16 and BF16 round to nearest. Q8_0 to Q5_1 give what the published quantizer gives (ggml's
// gguf-py, gguf/quants.py, 0.19), bit for bit: the scale that puts the block's extreme value, or
// both, on a step. Q4_K, Q5_K and Q6_K look for scales (and minima) of least squares
// (blocks_k.cpp).
void encode(GgufType type, const float *values, size_t count, uint8_t *out);

// blocks_k.cpp: one block of 256.
void encode_q4_k(const float *values, uint8_t *out);
void encode_q5_k(const float *values, uint8_t *out);
void encode_q6_k(const float *values, uint8_t *out);

} // namespace stasis
