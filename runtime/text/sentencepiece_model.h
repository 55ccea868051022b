// Reads the bytes of a sentencepiece model (a protobuf message) for properties that the library
// does not report: the kinds of its pieces, and its rules. Checks that the library may read it.
// Knows no files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/piece.h"

namespace stasis {

struct SentencepieceModel {
    std::vector<Piece> pieces; // by token id
    std::vector<float> scores; // [pieces]
    std::string type;          // "bpe", "unigram"
    std::string normalizer;    // name of the normalization rule
    bool normalizes = false;   // rules that replace characters exist
    bool byte_fallback = false;
    bool add_dummy_prefix = true;
    bool remove_extra_whitespaces = true;
    bool escape_whitespaces = true;
    // The model for the library: normalization adds and removes no whitespace, and there is no self
    // test, which would fail because of that.
    std::string plain;
};

// Throws Error: corrupt for bytes that are no such model, unsupported for kinds of models that no
// supported language model uses (word and character models, whitespace as a suffix).
SentencepieceModel read_sentencepiece_model(std::string_view bytes);

// Reports whether a text is like "<0x0A>", the spelling that a byte piece must have.
bool spells_byte(std::string_view text);

} // namespace stasis
