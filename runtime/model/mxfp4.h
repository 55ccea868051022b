// Blocks of MXFP4 as safetensors have them (gpt-oss), turned into those of GGUF files, which C8
// describes. Knows no files.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stasis {

// Fills `out` with `count` blocks of 17 bytes (kernels::Quant::mxfp4) in the order of a matrix's
// rows, from two tensors of bytes: `blocks` [count][16], where the low four bits of byte i are
// element 2 i and the upper four element 2 i + 1, and `scales` [count], whose byte s means
// 2^(s - 127). A block of GGUF has the byte s first, then elements i and i + 16 in a byte. A value
// is the same in both: half of kMxfp4Values, times 2^(s - 127). (Hugging Face transformers,
// integrations/mxfp4.py, has the names NAME_blocks and NAME_scales.)
void pack_mxfp4(const uint8_t *blocks, const uint8_t *scales, size_t count, uint8_t *out);

} // namespace stasis
