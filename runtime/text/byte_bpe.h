// Byte-level byte-pair encoding, as GPT-2 introduced it (Radford et al. 2019, section 2.2;
// openai/gpt-2, src/encoder.py): text is cut into words, the bytes of a word are its first symbols,
// and the neighbours whose merge was learnt first are merged until none are left to merge.
// Knows plain text only: special tokens have been taken out before. Immutable; safe from many
// threads.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "format/state/digest.h"
#include "runtime/text/piece.h"
#include "runtime/text/pretokenizer.h"

namespace stasis {

// What a file says of such a tokenizer.
struct ByteBpeModel {
    std::vector<Piece> pieces; // by token id; one without text is no token
    std::vector<std::pair<std::string, std::string>> merges; // of spellings, first learnt first
    std::vector<std::string> patterns;                       // of the pre-tokenizer
    bool compose = false;       // text is brought to Unicode's form NFC before it is cut
    bool ignore_merges = false; // a word that is a token is that token, whatever its merges make
};

class ByteBpe {
  public:
    // Tokens in `apart` (by id) never come out of plain text. `from`: the file, for messages.
    // Throws Error: corrupt (a merge of what are no tokens), unsupported (a pattern).
    ByteBpe(const ByteBpeModel &model, const std::vector<bool> &apart, const std::string &from);

    // Appends the tokens of a text (UTF-8). Throws Error: unsupported (a byte that the vocabulary
    // has no token for, a pattern that needs too long), cancelled.
    void encode(const std::string &text, const Watch &watch, std::vector<TextToken> &out) const;
    // The bytes that a token's spelling stands for; the spelling itself if it is no such spelling.
    std::string bytes(const std::string &spelling) const;

    std::vector<std::pair<std::string, std::string>> rules() const;
    // Adds the rules and each merge as three ids, first learnt first: with the tokens' spellings,
    // and which of them are kept apart, all that determines how plain text is cut and merged.
    void hash(Sha256 &hash) const;

  private:
    struct Merge {
        uint32_t rank = 0, token = 0;
    };
    struct Word; // the symbols of a word while they are merged

    void encode_words(const std::string &text, const Watch &watch,
                      std::vector<TextToken> &out) const;
    void encode_word(std::string_view word, size_t begin, const Watch &watch, Word &symbols,
                     std::vector<TextToken> &out) const;

    Pretokenizer pretokenizer_;
    bool compose_, ignore_merges_;
    std::array<int64_t, 256> byte_tokens_;            // -1: none
    std::unordered_map<uint64_t, Merge> merges_;      // by the ids of left (high) and right
    std::unordered_map<std::string, uint32_t> words_; // bytes of a token, where merges are ignored
};

} // namespace stasis
