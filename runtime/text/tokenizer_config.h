// A model directory's special tokens and chat template, which the vocabulary does not contain:
// tokenizer_config.json and chat_template.jinja as Hugging Face writes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/model/model_folder.h"

namespace stasis {

struct AddedToken {
    uint32_t token = 0;
    std::string text;
    bool special = false;
};

struct TokenizerConfig {
    std::string bos_text, eos_text; // empty: none
    std::string chat_template;      // empty: none; chat_template.jinja takes precedence
    std::vector<AddedToken> added;  // added_tokens_decoder, ascending by token
    // Whether a text on its own is given these tokens, by the tokenizer of a tokenizer.model.
    bool add_bos = true, add_eos = false;
};

// Reads both files, which are optional. Throws Error: io, corrupt.
TokenizerConfig read_tokenizer_config(const ModelFolder &folder);

} // namespace stasis
