// Reading tokenizer.model: values that the library would follow without checking are refused.
#include "runtime/text/sentencepiece_model.h"

#include <doctest/doctest.h>

#include "format/state/error.h"

using namespace stasis;

namespace {

Status status_of(const std::string &bytes) {
    try {
        read_sentencepiece_model(bytes);
    } catch (const Error &error) {
        return error.status();
    }
    return Status::ok;
}

} // namespace

TEST_CASE("SentencepieceModel: normalization rules that lead out of their table are refused") {
    const auto model = [](const std::string &map) {
        const auto varint = [](size_t n) {
            std::string out;
            for (; n >= 0x80; n >>= 7) {
                out += static_cast<char>(n | 0x80);
            }
            return out + static_cast<char>(n);
        };
        const std::string normalizer = "\x12" + varint(map.size()) + map;
        return std::string("\x0A\x03\x0A\x01"
                           "a",
                           5) +
               "\x1A" + varint(normalizer.size()) + normalizer;
    };
    std::string table = std::string("\x00\x04\x00\x00", 4) + std::string(1024, '\0');
    CHECK(status_of(model(table + std::string(1, '\0'))) == Status::ok);
    CHECK(status_of(model(table)) == Status::corrupt);
    CHECK(status_of(model(table + "x")) == Status::corrupt);
    for (size_t unit = 0; unit < 256; ++unit) {
        std::string hostile = table;
        hostile[4 + 4 * unit + 2] = '\x04'; // offset 256: just beyond the 256 units
        CHECK(status_of(model(hostile + std::string(1, '\0'))) == Status::corrupt);
    }
}

TEST_CASE(
    "SentencepieceModel: a piece with a NUL byte is refused where it would be a key of an array") {
    const auto model = [](char kind, char type) { // pieces <unk>, <s>, </s>, "\0<s>"
        const auto piece = [](const std::string &text, char of_kind) {
            const std::string body = std::string("\x0A") + static_cast<char>(text.size()) + text +
                                     std::string("\x15\0\0\0\0\x18", 6) + of_kind;
            return std::string("\x0A") + static_cast<char>(body.size()) + body;
        };
        return piece("<unk>", 2) + piece("<s>", 3) + piece("</s>", 3) +
               piece(std::string("\0<s>", 4), kind) + std::string("\x12\x02\x18", 3) + type;
    };
    constexpr char kNormal = 1, kUserDefined = 4, kUnigram = 1, kBpe = 2;
    const auto attempt = [&](char kind, char type) { return status_of(model(kind, type)); };
    CHECK(attempt(kUserDefined, kUnigram) == Status::corrupt);
    CHECK(attempt(kNormal, kUnigram) == Status::corrupt);
    CHECK(attempt(kUserDefined, kBpe) == Status::corrupt);
    CHECK(attempt(kNormal, kBpe) == Status::ok);
}
