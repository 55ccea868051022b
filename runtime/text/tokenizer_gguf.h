// Reads the vocabulary in the metadata of a GGUF file (ggml's docs/gguf.md, "Tokenizer";
// llama.cpp's gguf-py/gguf/constants.py for keys that it does not list).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/model/gguf/gguf.h"
#include "runtime/text/byte_bpe.h"
#include "runtime/text/tokenizer_config.h"

namespace stasis {

struct GgufVocabulary {
    std::optional<ByteBpeModel> byte_bpe; // tokenizer.ggml.model is gpt2
    std::string sentencepiece;            // else the bytes of a tokenizer.model: llama, gemma
    std::vector<float> scores;            // byte_bpe: by token id; empty: none
    std::string add_bos;                  // the file's request: "yes", "no", "" (none)
    std::vector<AddedToken> added;        // user-defined tokens, ascending
    std::vector<uint32_t> bos;            // at most one
    std::vector<uint32_t> end_tokens;     // end of sequence, of turn, of message
    bool bos_usual = false;               // before a text on its own, if the file does not say
    std::vector<uint32_t> after;          // a text on its own: the end of sequence, or nothing
};

// Keys of this project for properties without a key in the format; readers without them treat the
// files like files that lack them. "NFC" if text is converted to that form before it is cut:
inline constexpr char kNormalization[] = "stasis.tokenizer.normalization";
// Ids of user-defined tokens that are ordinary text although they are spelled like a marker:
inline constexpr char kTextTokens[] = "stasis.tokenizer.text_tokens";

// Reports whether a text is spelled like a marker, "<|im_end|>". User-defined tokens with such a
// spelling are markers unless kTextTokens lists them, because some files declare all tokens added
// to a vocabulary user-defined.
bool marks_structure(const std::string &text);

// Throws Error: corrupt, unsupported (naming another kind of tokenizer or pre-tokenizer).
GgufVocabulary read_gguf_vocabulary(const GgufFile &gguf);

} // namespace stasis
