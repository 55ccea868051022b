// Converts floats to the types of GGUF files, including blocks of small integers. The reverse is
// runtime/kernels/reference/block.cpp; layouts: NUMERICS.md, C8. Gives the same bytes on every
// machine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/model/gguf/types.h"

namespace stasis {

// Values from this one on become infinite as f16, the type of the scales of blocks.
inline constexpr float kF16Overflow = 65520.0F;

uint16_t f32_to_f16(float value); // rounds to nearest even, to denormals too

// Encodes `count` finite values, whole blocks, below kF16Overflow in magnitude unless the type is
// F32 or BF16. Runs in the contract's floating-point environment.
//
// F16 and BF16 round to nearest. Q8_0 to Q5_1 equal the published quantizer's (ggml's gguf-py,
// gguf/quants.py, 0.19) bit for bit: the scale puts the block's extreme value, or both of them, on
// a step; so does MXFP4, but for blocks that it clamps (blocks_4.cpp). The others use scales (and
// minima) of least squares (blocks_k.cpp, blocks_4.cpp).
void encode(GgufType type, const float *values, size_t count, uint8_t *out);

// blocks_k.cpp: encode one block of 256.
void encode_q2_k(const float *values, uint8_t *out);
void encode_q3_k(const float *values, uint8_t *out);
void encode_q4_k(const float *values, uint8_t *out);
void encode_q5_k(const float *values, uint8_t *out);
void encode_q6_k(const float *values, uint8_t *out);

// blocks_4.cpp: encode one block of 32 or, of IQ4_XS, of 256.
void encode_iq4_nl(const float *values, uint8_t *out);
void encode_iq4_xs(const float *values, uint8_t *out);
void encode_mxfp4(const float *values, uint8_t *out);

} // namespace stasis
