// Reads protobuf's wire format (protobuf.dev, "Encoding") with the field numbers of
// sentencepiece_model.proto (github.com/google/sentencepiece); see sentencepiece_model.h.
#include "runtime/text/sentencepiece_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "format/state/error.h"

namespace stasis {

namespace {

constexpr size_t kPiecesMax = 1 << 22;

[[noreturn]] void corrupt(const char *what, size_t offset) {
    fail(Status::corrupt, "tokenizer.model: %s (at byte %zu)", what, offset);
}

struct Field {
    uint64_t number = 0;
    uint32_t wire_type = 0;
    uint64_t value = 0;     // varint, or the bits of a fixed-size number
    std::string_view bytes; // length-delimited
    std::string_view whole; // including the tag
};

// The fields of one message, in order.
class Fields {
  public:
    // `offset` is the begin of `bytes` in the file, for messages.
    Fields(std::string_view bytes, size_t offset) : bytes_(bytes), offset_(offset) {}

    bool next(Field &field) {
        if (at_ == bytes_.size()) {
            return false;
        }
        const size_t begin = at_;
        const uint64_t tag = varint();
        field = {};
        field.number = tag >> 3;
        field.wire_type = static_cast<uint32_t>(tag & 7);
        switch (field.wire_type) {
        case 0:
            field.value = varint();
            break;
        case 1:
            field.value = fixed(8);
            break;
        case 2:
            field.bytes = take(varint());
            break;
        case 5:
            field.value = fixed(4);
            break;
        default:
            corrupt("a field has an unknown wire type", offset_ + begin);
        }
        field.whole = bytes_.substr(begin, at_ - begin);
        return true;
    }

    size_t offset_of(std::string_view part) const {
        return offset_ + static_cast<size_t>(part.data() - bytes_.data());
    }

  private:
    uint64_t varint() {
        uint64_t value = 0;
        for (unsigned shift = 0; shift < 64; shift += 7) {
            if (at_ == bytes_.size()) {
                corrupt("a number is cut off", offset_ + at_);
            }
            const auto byte = static_cast<unsigned char>(bytes_[at_++]);
            value |= static_cast<uint64_t>(byte & 0x7F) << shift;
            if (byte < 0x80) {
                return value;
            }
        }
        corrupt("a number is longer than 64 bits", offset_ + at_);
    }

    std::string_view take(uint64_t size) {
        if (size > bytes_.size() - at_) {
            corrupt("a field reaches beyond its message", offset_ + at_);
        }
        const std::string_view out = bytes_.substr(at_, static_cast<size_t>(size));
        at_ += out.size();
        return out;
    }

    uint64_t fixed(size_t size) {
        uint64_t value = 0;
        const std::string_view bytes = take(size);
        for (size_t i = 0; i < size; ++i) {
            value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
        }
        return value;
    }

    std::string_view bytes_;
    size_t offset_, at_ = 0;
};

// Throws Error(corrupt) if a field does not have the wire type that the schema gives it.
void expect(const Field &field, uint32_t wire_type, size_t offset) {
    if (field.wire_type != wire_type) {
        corrupt("a field is not of the type that the schema gives it", offset);
    }
}

Piece read_piece(std::string_view bytes, size_t offset, float &score) {
    Piece piece;
    score = 0;
    Fields fields(bytes, offset);
    for (Field field; fields.next(field);) {
        const size_t at = fields.offset_of(field.whole);
        if (field.number == 1) {
            expect(field, 2, at);
            piece.text = field.bytes;
        } else if (field.number == 2) {
            expect(field, 5, at);
            score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
            if (!std::isfinite(score)) {
                corrupt("a piece's score is not a finite number", at);
            }
        } else if (field.number == 3) {
            expect(field, 0, at);
            if (field.value < 1 || field.value > 6) {
                corrupt("a piece is of an unknown kind", at);
            }
            piece.kind = static_cast<PieceKind>(field.value);
        }
    }
    if (piece.text.empty()) {
        corrupt("a piece is empty", offset);
    }
    if (piece.kind == PieceKind::byte && !spells_byte(piece.text)) {
        corrupt("a byte piece is not spelled like <0x0A>", offset);
    }
    return piece;
}

void read_trainer(std::string_view bytes, size_t offset, SentencepieceModel &model) {
    Fields fields(bytes, offset);
    for (Field field; fields.next(field);) {
        const size_t at = fields.offset_of(field.whole);
        if (field.number == 3) { // model_type
            expect(field, 0, at);
            if (field.value != 1 && field.value != 2) {
                fail(Status::unsupported,
                     "tokenizer.model: model type %llu; supported are 1 (unigram) and 2 (bpe)",
                     static_cast<Number>(field.value));
            }
            model.type = field.value == 1 ? "unigram" : "bpe";
        } else if (field.number == 24 && field.value != 0) { // treat_whitespace_as_suffix
            fail(Status::unsupported, "tokenizer.model: treats whitespace as a suffix");
        } else if (field.number == 35) { // byte_fallback
            expect(field, 0, at);
            model.byte_fallback = field.value != 0;
        }
    }
}

uint32_t word(std::string_view bytes, size_t index) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) {
        value |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[4 * index + i])) << (8 * i);
    }
    return value;
}

// Checks the rules of a normalization: u32 size, a Darts double array of that size, the
// replacements, each ended by NUL. The library follows the array without checking bounds, so every
// step that it could take is checked. Layout of a unit: Darts-clone, class DoubleArrayUnit.
void check_rules(std::string_view map, size_t offset) {
    if (map.empty()) {
        return; // identity
    }
    const size_t size = map.size() >= 4 ? word(map, 0) : SIZE_MAX;
    if (size >= map.size() - std::min<size_t>(map.size(), 4) || size % 1024 != 0 || size == 0 ||
        map.back() != '\0') {
        corrupt("the normalization rules do not fit into their field", offset);
    }
    // Every unit's children and value must be inside the tables.
    const std::string_view units = map.substr(4, size);
    const size_t replacements = map.size() - 4 - size, count = size / 4;
    for (size_t i = 0; i < count; ++i) {
        const uint32_t unit = word(units, i);
        if (i > 0 && (unit >> 31) != 0) {
            continue; // a value; its parent is checked below
        }
        const size_t base = i ^ ((unit >> 10) << ((unit & (1U << 9)) >> 6));
        if ((base | 0xFF) >= count) {
            corrupt("the normalization rules lead out of their table", offset);
        }
        if ((unit & (1U << 8)) != 0 && (word(units, base) & 0x7FFFFFFF) >= replacements) {
            corrupt("a normalization rule has no replacement", offset);
        }
    }
}

void read_normalizer(std::string_view bytes, size_t offset, SentencepieceModel &model) {
    Fields fields(bytes, offset);
    for (Field field; fields.next(field);) {
        const size_t at = fields.offset_of(field.whole);
        if (field.number == 1) {
            expect(field, 2, at);
            model.normalizer = field.bytes;
        } else if (field.number == 2) { // precompiled_charsmap
            expect(field, 2, at);
            check_rules(field.bytes, at);
            model.normalizes = !field.bytes.empty();
        } else if (field.number >= 3 && field.number <= 5) {
            expect(field, 0, at);
            bool &flag = field.number == 3   ? model.add_dummy_prefix
                         : field.number == 4 ? model.remove_extra_whitespaces
                                             : model.escape_whitespaces;
            flag = field.value != 0;
        }
    }
}

} // namespace

bool spells_byte(std::string_view text) {
    return text.size() == 6 && text.starts_with("<0x") && text.back() == '>' &&
           text.find_first_not_of("0123456789ABCDEF", 3) == 5;
}

SentencepieceModel read_sentencepiece_model(std::string_view bytes) {
    constexpr size_t kNowhere = SIZE_MAX;
    size_t nul_anywhere = kNowhere, nul_defined = kNowhere; // first piece with a NUL byte
    SentencepieceModel model;
    model.type = "unigram"; // the schema's default
    // The model for the library has every field but the self test and the denormalizer.
    Fields fields(bytes, 0);
    for (Field field; fields.next(field);) {
        const size_t at = fields.offset_of(field.whole);
        if (field.number >= 1 && field.number <= 5) {
            expect(field, 2, at);
        }
        if (field.number == 1) {
            if (model.pieces.size() == kPiecesMax) {
                corrupt("more than four million pieces", at);
            }
            model.pieces.push_back(read_piece(field.bytes, at, model.scores.emplace_back()));
            const bool defined = model.pieces.back().kind == PieceKind::user_defined;
            if (model.pieces.back().text.find('\0') != std::string::npos) {
                nul_anywhere = std::min(nul_anywhere, at);
                nul_defined = std::min(nul_defined, defined ? at : kNowhere);
            }
        } else if (field.number == 2) {
            read_trainer(field.bytes, at, model);
        } else if (field.number == 3) {
            read_normalizer(field.bytes, at, model);
        }
        if (field.number != 4 && field.number != 5) { // self test, denormalizer
            model.plain += field.whole;
        }
    }
    if (model.pieces.empty()) {
        corrupt("no pieces", bytes.size());
    }
    // The library stores these pieces in Darts arrays, whose keys end at a NUL; it would end the
    // process if such a key is empty.
    const size_t nul = model.type == "unigram" ? nul_anywhere : nul_defined;
    if (nul != kNowhere) {
        corrupt("a piece contains a NUL byte", nul);
    }
    // A second normalizer_spec (field 3) merges with the first: add_dummy_prefix (3) and
    // remove_extra_whitespaces (4) false.
    model.plain.append("\x1A\x04\x18\x00\x20\x00", 6);
    return model;
}

} // namespace stasis
