// Encodes plain text through the sentencepiece library. Texts that the library would add, join or
// recognise by itself are cut before. Immutable and thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/text/markers.h"
#include "runtime/text/piece.h"
#include "runtime/text/sentencepiece_model.h"

namespace sentencepiece {
class SentencePieceProcessor;
} // namespace sentencepiece

namespace stasis {

class SentencepieceEncoder {
  public:
    // `guarded` holds the special pieces that the library would find in any text. `from` is the
    // file, for messages. Throws Error(corrupt).
    SentencepieceEncoder(const SentencepieceModel &model, Markers guarded, const std::string &from);
    ~SentencepieceEncoder();
    SentencepieceEncoder(SentencepieceEncoder &&) noexcept;
    SentencepieceEncoder &operator=(SentencepieceEncoder &&) noexcept;

    // Appends the tokens of a text (UTF-8). `prefix`: with the dummy prefix, an ordinary space in
    // front that stands for no bytes of the text.
    void encode(const std::string &text, bool prefix, std::vector<TextToken> &out) const;
    // Returns the bytes of an ordinary piece.
    std::string bytes(const std::string &spelling) const;

  private:
    void encode_part(const std::string &text, size_t begin, size_t end, bool prefix,
                     std::vector<TextToken> &out) const;

    std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
    Markers guarded_;
    bool escapes_space_;
};

} // namespace stasis
