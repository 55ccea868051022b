// The types of tensors in a GGUF file: numbers and names as published (ggml's docs/gguf.md, enum
// ggml_type), and the bytes of a block of the supported ones.
#pragma once

#include <cstdint>
#include <string>

namespace stasis {

enum class GgufType : uint32_t {
    f32 = 0,
    f16 = 1,
    q4_0 = 2,
    q4_1 = 3,
    q5_0 = 6,
    q5_1 = 7,
    q8_0 = 8,
    q2_k = 10,
    q3_k = 11,
    q4_k = 12,
    q5_k = 13,
    q6_k = 14,
    iq4_nl = 20,
    iq4_xs = 23,
    bf16 = 30,
    mxfp4 = 39,
    // Any other number is stored unchanged.
};

// A row of a tensor is a whole number of blocks. 0 elements: the type is not supported.
struct GgufBlock {
    uint32_t elements = 0;
    uint32_t size_bytes = 0;
};

GgufBlock gguf_block(GgufType type);

// Returns the name, also of unsupported types ("IQ3_S"); "type 77" for a number without a
// published name.
std::string gguf_type_name(GgufType type);

} // namespace stasis
