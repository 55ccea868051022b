// Block sizes of types: ggml's ggml-common.h (block_q4_0 and so on), where d, m and dmin are f16,
// one for a block. The K-quants' super-blocks have 256 elements with packed 6-bit scales (12 bytes
// for Q3_K, Q4_K and Q5_K) or sixteen scales of four (Q2_K) or eight bits (Q6_K).
#include "runtime/model/gguf/types.h"

#include <iterator>

namespace stasis {

GgufBlock gguf_block(GgufType type) {
    switch (type) {
    case GgufType::f32:
        return {1, 4};
    case GgufType::f16:
    case GgufType::bf16:
        return {1, 2};
    case GgufType::q4_0: // d, 32 x 4 bits
        return {32, 2 + 16};
    case GgufType::q4_1: // d, m, 32 x 4 bits
        return {32, 2 + 2 + 16};
    case GgufType::q5_0: // d, 32 fifth bits, 32 x 4 bits
        return {32, 2 + 4 + 16};
    case GgufType::q5_1: // d, m, 32 fifth bits, 32 x 4 bits
        return {32, 2 + 2 + 4 + 16};
    case GgufType::q8_0: // d, 32 x 8 bits
        return {32, 2 + 32};
    case GgufType::q2_k: // scales, 256 x 2 bits, d, dmin
        return {256, 16 + 64 + 2 + 2};
    case GgufType::q3_k: // 256 third bits, 256 x 2 bits, scales, d
        return {256, 32 + 64 + 12 + 2};
    case GgufType::q4_k: // d, dmin, scales, 256 x 4 bits
        return {256, 2 + 2 + 12 + 128};
    case GgufType::q5_k: // d, dmin, scales, 256 fifth bits, 256 x 4 bits
        return {256, 2 + 2 + 12 + 32 + 128};
    case GgufType::q6_k: // 256 x 4 low bits, 256 x 2 high bits, scales, d
        return {256, 128 + 64 + 16 + 2};
    case GgufType::iq4_nl: // d, 32 x 4 bits
        return {32, 2 + 16};
    case GgufType::iq4_xs: // d, upper bits of 8 scales, their lower bits, 256 x 4 bits
        return {256, 2 + 2 + 4 + 128};
    case GgufType::mxfp4: // an exponent, 32 x 4 bits
        return {32, 1 + 16};
    }
    return {};
}

std::string gguf_type_name(GgufType type) {
    // Names by number; some (Q4_2, Q4_0_4_4) were withdrawn.
    static constexpr const char *kNames[] = {
        "F32",   "F16",        "Q4_0",       "Q4_1",       "Q4_2",     "Q4_3",     "Q5_0",
        "Q5_1",  "Q8_0",       "Q8_1",       "Q2_K",       "Q3_K",     "Q4_K",     "Q5_K",
        "Q6_K",  "Q8_K",       "IQ2_XXS",    "IQ2_XS",     "IQ3_XXS",  "IQ1_S",    "IQ4_NL",
        "IQ3_S", "IQ2_S",      "IQ4_XS",     "I8",         "I16",      "I32",      "I64",
        "F64",   "IQ1_M",      "BF16",       "Q4_0_4_4",   "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",
        "TQ2_0", "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4",    "NVFP4",    "Q1_0",
    };
    const auto number = static_cast<uint32_t>(type);
    return number < std::size(kNames) ? kNames[number] : "type " + std::to_string(number);
}

} // namespace stasis
