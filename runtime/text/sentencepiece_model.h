// A walk over the bytes of a sentencepiece model (a protobuf message), for what the library does
// not tell: the kinds of its pieces, its rules; and a check that the library may be given it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/piece.h"

namespace stasis {

struct SentencepieceModel {
    std::vector<Piece> pieces; // by token id
    std::vector<float> scores; // as many
    std::string type;          // "bpe", "unigram"
    std::string normalizer;    // name of the normalization rule
    bool normalizes = false;   // there are rules that replace characters
    bool byte_fallback = false;
    bool add_dummy_prefix = true;
    bool remove_extra_whitespaces = true;
    bool escape_whitespaces = true;
    // The model as it is handed to the library: normalization adds and removes no whitespace, and
    // there is no self test (it would fail for that).
    std::string plain;
};

// Throws Error: corrupt for bytes that are no such model, unsupported for kinds of models that no
// supported language model uses (word and character models, whitespace as a suffix).
SentencepieceModel read_sentencepiece_model(std::string_view bytes);

// "<0x0A>": how a piece of kind byte must be spelled.
bool spells_byte(std::string_view text);

} // namespace stasis
