// Encodes plain text through the sentencepiece library; see sentencepiece_encoder.h.
#include "runtime/text/sentencepiece_encoder.h"

#include <algorithm>
#include <mutex>
#include <sentencepiece_processor.h>
#include <string_view>
#include <unordered_map>

#include "format/state/error.h"

namespace sentencepiece::logging {
void SetMinLogLevel(int level); // exported, but not declared in an installed header
} // namespace sentencepiece::logging

namespace stasis {

namespace {

// Throws Error(corrupt) for control pieces that a text could become. The library searches a merged
// text among control pieces first, and treats a match as a symbol that covers no text. So a control
// piece may be neither a single character, which needs no merge, nor equal to another piece's text.
void check_control(const std::vector<Piece> &pieces, const std::string &from) {
    std::unordered_map<std::string_view, size_t> control;
    for (size_t token = 0; token < pieces.size(); ++token) {
        const Piece &piece = pieces[token];
        if (piece.kind == PieceKind::control) {
            control.emplace(piece.text, token);
            const auto begins = [](char c) { return (c & 0xC0) != 0x80; };
            if (std::count_if(piece.text.begin(), piece.text.end(), begins) < 2) {
                fail(Status::corrupt, "%s: control piece %zu ('%s') is a single character",
                     from.c_str(), token, piece.text.c_str());
            }
        }
    }
    for (size_t token = 0; token < pieces.size(); ++token) {
        const auto found = control.find(pieces[token].text);
        if (found != control.end() && found->second != token) {
            fail(Status::corrupt, "%s: piece %zu is the same as control piece %zu ('%.40s')",
                 from.c_str(), token, found->second, pieces[token].text.c_str());
        }
    }
}

} // namespace

SentencepieceEncoder::~SentencepieceEncoder() = default;
SentencepieceEncoder::SentencepieceEncoder(SentencepieceEncoder &&) noexcept = default;
SentencepieceEncoder &SentencepieceEncoder::operator=(SentencepieceEncoder &&) noexcept = default;

SentencepieceEncoder::SentencepieceEncoder(const SentencepieceModel &model, Markers guarded,
                                           const std::string &from)
    : processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()),
      guarded_(std::move(guarded)), escapes_space_(model.escape_whitespaces) {
    check_control(model.pieces, from);
    static std::once_flag silenced; // a library prints nothing; 3: only fatal errors
    std::call_once(silenced, [] { sentencepiece::logging::SetMinLogLevel(3); });
    const auto status = processor_->LoadFromSerializedProto(model.plain);
    if (!status.ok()) {
        fail(Status::corrupt, "%s: %s", from.c_str(), status.error_message());
    }
}

// Encodes [begin, end) of a text. The processor adds no dummy prefix. A prefix is passed as an
// ordinary space in front, which is the same.
void SentencepieceEncoder::encode_part(const std::string &text, size_t begin, size_t end,
                                       bool prefix, std::vector<TextToken> &out) const {
    if (begin == end) {
        return;
    }
    const size_t shift = prefix ? 1 : 0;
    const std::string input = (prefix ? " " : "") + text.substr(begin, end - begin);
    sentencepiece::ImmutableSentencePieceText result;
    const auto status = processor_->Encode(input, result.mutable_proto());
    if (!status.ok()) {
        fail(Status::corrupt, "the tokenizer's vocabulary fails on this text: %s",
             status.error_message());
    }
    const auto place = [&](uint32_t at) { return begin + (at > shift ? at - shift : 0); };
    for (const auto &piece : result.pieces()) {
        out.push_back({piece.id(), place(piece.begin()), place(piece.end())});
    }
}

// Encodes a text. A special piece inside a text is text, so it is cut after its first character and
// sentencepiece never sees it whole.
void SentencepieceEncoder::encode(const std::string &text, bool prefix,
                                  std::vector<TextToken> &out) const {
    size_t begin = 0;
    for (size_t at = 0; at < text.size(); ++at) {
        if (guarded_.longest(text, at).size_bytes > 0) {
            size_t end = at + 1;
            while (end < text.size() && (text[end] & 0xC0) == 0x80) {
                ++end;
            }
            encode_part(text, begin, end, prefix && begin == 0, out);
            begin = end;
        }
    }
    encode_part(text, begin, text.size(), prefix && begin == 0, out);
}

std::string SentencepieceEncoder::bytes(const std::string &spelling) const {
    static constexpr std::string_view kSpace = "\u2581"; // the spelling of a space in vocabularies
    if (!escapes_space_) {
        return spelling;
    }
    std::string out;
    size_t at = 0;
    for (size_t space; (space = spelling.find(kSpace, at)) != std::string::npos;
         at = space + kSpace.size()) {
        out.append(spelling, at, space - at) += ' ';
    }
    return out.append(spelling, at);
}

} // namespace stasis
