// The vocabulary in the metadata of a GGUF file (ggml's docs/gguf.md, "Tokenizer"; llama.cpp's
// gguf-py/gguf/constants.py for keys that it does not list).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/gguf/gguf.h"
#include "runtime/text/byte_bpe.h"
#include "runtime/text/tokenizer_config.h"

namespace stasis {

struct GgufVocabulary {
    std::optional<ByteBpeModel> byte_bpe; // tokenizer.ggml.model is gpt2
    std::string sentencepiece;            // else the bytes of a tokenizer.model: llama, gemma
    std::string add_bos;                  // what the file asks for: "yes", "no", "" (says nothing)
    std::vector<AddedToken> added;        // user-defined tokens, ascending
    std::vector<uint32_t> bos;            // none or one
    std::vector<uint32_t> end_tokens;     // end of sequence, end of turn
};

// Throws Error: corrupt, unsupported (another kind of tokenizer or pre-tokenizer, named).
GgufVocabulary read_gguf_vocabulary(const GgufFile &gguf);

} // namespace stasis
