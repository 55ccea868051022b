// See sentencepiece_encoder.h.
#include "runtime/text/sentencepiece_encoder.h"

#include <mutex>
#include <sentencepiece_processor.h>

#include "format/error.h"

namespace sentencepiece::logging {
void SetMinLogLevel(int level); // exported, but in no installed header
} // namespace sentencepiece::logging

namespace stasis {

SentencepieceEncoder::~SentencepieceEncoder() = default;
SentencepieceEncoder::SentencepieceEncoder(SentencepieceEncoder &&) noexcept = default;
SentencepieceEncoder &SentencepieceEncoder::operator=(SentencepieceEncoder &&) noexcept = default;

SentencepieceEncoder::SentencepieceEncoder(const SentencepieceModel &model, Markers guarded,
                                           const std::string &from)
    : processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()),
      guarded_(std::move(guarded)), escapes_space_(model.escape_whitespaces) {
    static std::once_flag silenced; // a library prints nothing; 3: fatal only
    std::call_once(silenced, [] { sentencepiece::logging::SetMinLogLevel(3); });
    const auto status = processor_->LoadFromSerializedProto(model.plain);
    if (!status.ok()) {
        fail(Status::corrupt, "%s: %s", from.c_str(), status.error_message());
    }
}

// Encodes [begin, end) of a text. The processor adds no dummy prefix; where one is due it is an
// ordinary space in front, which is what the prefix is.
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
        fail(Status::internal, "sentencepiece: %s", status.error_message());
    }
    const auto place = [&](uint32_t at) { return begin + (at > shift ? at - shift : 0); };
    for (const auto &piece : result.pieces()) {
        out.push_back({piece.id(), place(piece.begin()), place(piece.end())});
    }
}

// A special piece inside a text is text: it is cut behind its first character, so that
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
    std::string out = spelling;
    static constexpr std::string_view kSpace = "\u2581"; // how vocabularies spell a space
    if (escapes_space_) {
        for (size_t at = 0; (at = out.find(kSpace, at)) != std::string::npos; ++at) {
            out.replace(at, kSpace.size(), " ");
        }
    }
    return out;
}

} // namespace stasis
