// Writes the bytes of a tokenizer.model from its parts, for vocabularies that come in other files:
// the library then does with them what it does with the original.
#pragma once

#include <string>
#include <vector>

#include "runtime/text/piece.h"

namespace stasis {

struct SentencepieceParts {
    std::vector<Piece> pieces; // by token id; none empty, one of them unknown
    std::vector<float> scores; // as many
    bool byte_fallback = false;
    bool add_dummy_prefix = true;
    bool remove_extra_whitespaces = false;
};

// A byte-pair model (model_type 2) without normalization rules.
std::string build_sentencepiece_model(const SentencepieceParts &parts);

} // namespace stasis
