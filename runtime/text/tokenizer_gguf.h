// The vocabulary in the metadata of a GGUF file (ggml's docs/gguf.md, "Tokenizer"; llama.cpp's
// gguf-py/gguf/constants.py for keys that it does not list).
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
    std::string add_bos;                  // what the file asks for: "yes", "no", "" (says nothing)
    std::vector<AddedToken> added;        // user-defined tokens, ascending
    std::vector<uint32_t> bos;            // none or one
    std::vector<uint32_t> end_tokens;     // end of sequence, of turn, of message
};

// Keys of this project's own, for what the format has no key for; readers that do not know them go
// without, as they do with files that lack them. "NFC" where text is brought to that form before it
// is cut:
inline constexpr char kNormalization[] = "stasis.tokenizer.normalization";
// Ids of user-defined tokens that are text like any other although they are spelled like a marker:
inline constexpr char kTextTokens[] = "stasis.tokenizer.text_tokens";

// Whether a spelling is one of markers, "<|im_end|>": what user-defined tokens are taken for that
// kTextTokens does not list, since some files call all that was added to a vocabulary user-defined.
bool marks_structure(const std::string &text);

// Throws Error: corrupt, unsupported (another kind of tokenizer or pre-tokenizer, named).
GgufVocabulary read_gguf_vocabulary(const GgufFile &gguf);

} // namespace stasis
