// The tokens that a model's own tokenizer puts before and after a text. Tokenizer::encode adds none
// of them; embeddings need them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/model/json.h"

namespace stasis {

struct TextFrame {
    std::vector<uint32_t> before, after;
    std::string refusal; // why the file's rule cannot be followed; "": it can
};

// Returns what the post_processor of a tokenizer.json adds; `file` is its name for messages. For a
// rule that is not supported it sets `refusal` instead of throwing.
TextFrame read_text_frame(const Json &tokenizer_json, const std::string &file, uint32_t vocabulary);

} // namespace stasis
