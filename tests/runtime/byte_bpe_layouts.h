// The tokenizers below tests/data/byte-bpe, each in the layout of another family of models.
#pragma once

namespace stasis {

inline constexpr const char *kLayouts[] = {"llama3", "smollm2", "qwen2", "deepseek-coder",
                                           "gpt-oss"};

} // namespace stasis
