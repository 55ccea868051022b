// A token in its vocabulary, and a token as a part of a text: types that all kinds of tokenizers
// share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace stasis {

// The numbers of sentencepiece_model.proto, ModelProto.SentencePiece.Type, and of GGUF's
// tokenizer.ggml.token_type.
enum class PieceKind : uint32_t {
    normal = 1,
    unknown = 2,
    control = 3,
    user_defined = 4,
    unused = 5,
    byte = 6,
};

struct Piece {
    std::string text; // the vocabulary's spelling
    PieceKind kind = PieceKind::normal;
};

// A token and the bytes of the text that it stands for.
struct TextToken {
    uint32_t token = 0;
    size_t begin = 0, end = 0;
};

} // namespace stasis
