// Writes the bytes of a tokenizer.model from its parts, for vocabularies in other files, so that
// the library treats them like the original. Knows no files.
#pragma once

#include <string>
#include <vector>

#include "runtime/text/piece.h"

namespace stasis {

struct SentencepieceParts {
    std::vector<Piece> pieces; // by token id; none is empty, one is unknown
    std::vector<float> scores; // [pieces]
    bool byte_fallback = false;
    bool add_dummy_prefix = true;
    bool remove_extra_whitespaces = false;
};

// Returns a byte-pair model (model_type 2) without normalization rules.
std::string build_sentencepiece_model(const SentencepieceParts &parts);

} // namespace stasis
