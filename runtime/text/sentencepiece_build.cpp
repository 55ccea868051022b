// Writes protobuf's wire format (protobuf.dev, "Encoding") with the field numbers of
// sentencepiece_model.proto (github.com/google/sentencepiece); sentencepiece_model.cpp reads it.
#include "runtime/text/sentencepiece_build.h"

#include <bit>
#include <cstdint>

namespace stasis {

namespace {

std::string varint(uint64_t value) {
    std::string out;
    for (; value >= 0x80; value >>= 7) {
        out += static_cast<char>(value | 0x80);
    }
    return out + static_cast<char>(value);
}

std::string number(uint32_t field, uint64_t value) {
    return varint(field << 3) + varint(value);
}

std::string bytes(uint32_t field, const std::string &value) {
    return varint(field << 3 | 2) + varint(value.size()) + value;
}

std::string real(uint32_t field, float value) {
    std::string out = varint(field << 3 | 5);
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int i = 0; i < 4; ++i) {
        out += static_cast<char>(bits >> (8 * i));
    }
    return out;
}

} // namespace

std::string build_sentencepiece_model(const SentencepieceParts &parts) {
    std::string out;
    for (size_t i = 0; i < parts.pieces.size(); ++i) {
        const Piece &piece = parts.pieces[i];
        out += bytes(1, bytes(1, piece.text) + real(2, parts.scores[i]) +
                            number(3, static_cast<uint64_t>(piece.kind)));
    }
    constexpr uint64_t kBpe = 2;
    out += bytes(2, number(3, kBpe) + number(35, parts.byte_fallback ? 1 : 0)); // trainer_spec
    out += bytes(3, bytes(1, "identity") + number(3, parts.add_dummy_prefix ? 1 : 0) +
                        number(4, parts.remove_extra_whitespaces ? 1 : 0) + number(5, 1));
    return out;
}

} // namespace stasis
