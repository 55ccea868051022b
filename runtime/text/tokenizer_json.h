// Reads tokenizer.json as Hugging Face's tokenizers library writes it, for byte-level BPE: the
// parts that Llama 3, SmolLM2, Qwen2, GPT-2, StarCoder and DeepSeek-Coder need; and for BPE of
// characters that falls back to bytes, as Gemma 4 has it. Refuses by name any part that would cut
// or merge text differently.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/text/byte_bpe.h"
#include "runtime/text/text_frame.h"
#include "runtime/text/tokenizer_config.h"

namespace stasis {

struct TokenizerJson {
    ByteBpeModel model;
    std::vector<AddedToken> added; // ascending by token
    TextFrame frame;
};

// `vocabulary` is the number of tokens of the model. Throws Error: io, corrupt, unsupported.
TokenizerJson read_tokenizer_json(const ModelFolder &folder, const std::string &name,
                                  uint32_t vocabulary);

// Adds the tokens of `more` whose ids are not in `added`.
void merge_added(std::vector<AddedToken> &added, const std::vector<AddedToken> &more);

} // namespace stasis
