// Byte-level byte-pair encoding, as GPT-2 introduced it (Radford et al. 2019, section 2.2;
// openai/gpt-2, src/encoder.py). Text is cut into words; the bytes of a word are its first symbols;
// neighbours merge in the order in which merges were learnt, until none is left. Or, as Gemma 4 has
// it: the characters of the whole text are its first symbols, and the bytes of those that are no
// tokens. Knows plain text only, without special tokens. Immutable and thread-safe.
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

// The description of such a tokenizer in a file.
struct ByteBpeModel {
    std::vector<Piece> pieces; // by token id; one without text is no token
    std::vector<std::pair<std::string, std::string>> merges; // of spellings, in the order learnt
    std::vector<std::string> patterns;                       // of the pre-tokenizer
    bool compose = false;       // text is converted to Unicode's form NFC before it is cut
    bool ignore_merges = false; // a word that is a token becomes that token without merging
    // Symbols are characters, spelled as they are but for a space, which is U+2581, and the bytes
    // of other characters as <0x0A>.
    bool characters = false;
};

class ByteBpe {
  public:
    // Plain text never becomes a token of `apart` (by id). `from` is the file, for messages. Throws
    // Error: corrupt (a merge of texts that are no tokens), unsupported (a pattern).
    ByteBpe(const ByteBpeModel &model, const std::vector<bool> &apart, const std::string &from);

    // Appends the tokens of a text (UTF-8). Throws Error: unsupported (a byte without a token, a
    // pattern that takes too many steps), cancelled.
    void encode(const std::string &text, const Watch &watch, std::vector<TextToken> &out) const;
    // Returns the bytes that a token's spelling stands for; the spelling itself if it spells no
    // bytes.
    std::string bytes(const std::string &spelling) const;

    std::vector<std::pair<std::string, std::string>> rules() const;
    // Adds the rules, and each merge as three ids in the order learnt. With the tokens' spellings,
    // and which of them are kept apart, this is all that determines how plain text is cut and
    // merged.
    void hash(Sha256 &hash) const;

  private:
    struct Merge {
        uint32_t rank = 0, token = 0;
    };
    struct Word; // the symbols of a word while they are merged

    void encode_words(const std::string &text, const Watch &watch,
                      std::vector<TextToken> &out) const;
    uint32_t byte_token(std::string_view text, size_t at, size_t begin) const;
    void add_characters(std::string_view text, size_t begin, const Watch &watch,
                        Word &symbols) const;
    void encode_word(std::string_view word, size_t begin, const Watch &watch, Word &symbols,
                     std::vector<TextToken> &out) const;

    Pretokenizer pretokenizer_;
    bool compose_, ignore_merges_, characters_;
    std::array<int64_t, 256> byte_tokens_;       // -1: none
    std::unordered_map<uint64_t, Merge> merges_; // by the ids of left (high) and right
    // Bytes of a token, if merges are ignored; or tokens of one character, by their spelling.
    std::unordered_map<std::string, uint32_t> words_;
};

} // namespace stasis
