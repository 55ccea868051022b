// Encodes words by byte-pair merges; see byte_bpe.h. Merging keeps the symbols of a word in a
// linked list and its possible merges in a heap, so that a word of n bytes takes O(n log n).
#include "runtime/text/byte_bpe.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "format/state/error.h"
#include "runtime/text/normal_form.h"

namespace stasis {

namespace {

// GPT-2's spelling of bytes: printable ones are themselves, the others are the code points from
// U+0100 on in order (src/encoder.py, bytes_to_unicode).
struct Alphabet {
    std::array<std::string, 256> spelling;
    std::array<int16_t, 0x144> byte; // by code point; -1: it spells no byte

    Alphabet() {
        byte.fill(-1);
        uint32_t next = 0x100;
        for (uint32_t b = 0; b < 256; ++b) {
            const bool printable =
                (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
            const uint32_t point = printable ? b : next++;
            byte[point] = static_cast<int16_t>(b);
            spelling[b] = point < 0x80 ? std::string(1, static_cast<char>(point))
                                       : std::string{static_cast<char>(0xC0 | point >> 6),
                                                     static_cast<char>(0x80 | (point & 0x3F))};
        }
    }

    // Returns the bytes of a spelling; empty if it spells no bytes.
    std::string read(std::string_view spelling_) const {
        std::string out;
        for (size_t i = 0; i < spelling_.size(); ++i) {
            uint32_t point = static_cast<unsigned char>(spelling_[i]);
            if (point >= 0x80) {
                const bool two = point >= 0xC2 && point < 0xE0 && i + 1 < spelling_.size();
                point =
                    two ? (point & 0x1F) << 6 | (static_cast<unsigned char>(spelling_[++i]) & 0x3F)
                        : UINT32_MAX;
            }
            if (point >= byte.size() || byte[point] < 0) {
                return "";
            }
            out += static_cast<char>(byte[point]);
        }
        return out;
    }
};

const Alphabet &alphabet() {
    static const Alphabet instance;
    return instance;
}

constexpr std::string_view kSpace =
    "\u2581"; // the spelling of a space where symbols are characters

std::string byte_spelling(size_t byte) {
    constexpr char kDigits[] = "0123456789ABCDEF";
    return std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">";
}

// Returns the bytes of the character that begins at a place of a text, which is UTF-8.
size_t character_bytes(std::string_view text, size_t at) {
    size_t end = at + 1;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
        ++end;
    }
    return end - at;
}

uint64_t pair_key(uint32_t left, uint32_t right) {
    return uint64_t{left} << 32 | right;
}

} // namespace

// The symbols of a word, by position at first; a merged symbol keeps the left position.
struct ByteBpe::Word {
    static constexpr uint32_t kNone = UINT32_MAX;
    struct Symbol {
        uint32_t token, previous, next, size_bytes; // size 0: merged into another
    };
    struct Candidate {
        uint32_t rank, place, left, right, token;
        // The top of the queue is the greatest: lowest rank first, then leftmost.
        bool operator<(const Candidate &other) const {
            return rank != other.rank ? rank > other.rank : place > other.place;
        }
    };
    std::vector<Symbol> symbols;
    std::priority_queue<Candidate> candidates;

    void consider(const std::unordered_map<uint64_t, Merge> &merges, uint32_t place) {
        const uint32_t next = place == kNone ? kNone : symbols[place].next;
        if (next == kNone) {
            return;
        }
        const uint32_t left = symbols[place].token, right = symbols[next].token;
        const auto merge = merges.find(pair_key(left, right));
        if (merge != merges.end()) {
            candidates.push({merge->second.rank, place, left, right, merge->second.token});
        }
    }

    // Merges in the order of the ranks. A merge makes new candidates with both neighbours.
    void merge_all(const std::unordered_map<uint64_t, Merge> &merges, const Watch &watch) {
        for (uint32_t i = 0; i + 1 < symbols.size(); ++i) {
            consider(merges, i);
        }
        while (!candidates.empty()) {
            const Candidate best = candidates.top();
            candidates.pop();
            watch.look(0, 0);
            Symbol &left = symbols[best.place];
            if (left.size_bytes == 0 || left.token != best.left || left.next == kNone ||
                symbols[left.next].token != best.right) {
                continue; // one of them was merged meanwhile
            }
            Symbol &right = symbols[left.next];
            left.token = best.token;
            left.size_bytes += right.size_bytes;
            right.size_bytes = 0;
            left.next = right.next;
            if (left.next != kNone) {
                symbols[left.next].previous = best.place;
            }
            consider(merges, left.previous);
            consider(merges, best.place);
        }
    }
};

ByteBpe::ByteBpe(const ByteBpeModel &model, const std::vector<bool> &apart, const std::string &from)
    : pretokenizer_(model.patterns, from), compose_(model.compose),
      ignore_merges_(model.ignore_merges), characters_(model.characters) {
    // The first of equal spellings counts.
    std::unordered_map<std::string_view, uint32_t> ids;
    for (uint32_t token = 0; token < model.pieces.size(); ++token) {
        const Piece &piece = model.pieces[token];
        if (piece.text.empty() || apart[token]) {
            continue;
        }
        const bool first = ids.emplace(piece.text, token).second;
        const std::string bytes = alphabet().read(piece.text);
        if (ignore_merges_ && first && !bytes.empty()) {
            words_.emplace(bytes, token);
        } else if (characters_ && first && character_bytes(piece.text, 0) == piece.text.size()) {
            words_.emplace(piece.text, token);
        }
    }
    // Each byte is a symbol of its own at first.
    for (size_t byte = 0; byte < 256; ++byte) {
        const auto found = ids.find(characters_ ? byte_spelling(byte) : alphabet().spelling[byte]);
        byte_tokens_[byte] = found == ids.end() ? -1 : int64_t{found->second};
    }
    // A merge is stored by the ids of its parts.
    merges_.reserve(model.merges.size());
    for (uint32_t rank = 0; rank < model.merges.size(); ++rank) {
        const auto &[left, right] = model.merges[rank];
        const auto l = ids.find(left), r = ids.find(right), both = ids.find(left + right);
        if (l == ids.end() || r == ids.end() || both == ids.end()) {
            fail(Status::corrupt, "%s: merge %u, of '%.40s' and '%.40s': %s is no ordinary token",
                 from.c_str(), rank, left.c_str(), right.c_str(),
                 l == ids.end()   ? "the first"
                 : r == ids.end() ? "the second"
                                  : "what they make");
        }
        merges_.emplace(pair_key(l->second, r->second), Merge{rank, both->second});
    }
}

// Returns the token of a byte of a text, which begins at `begin` of the whole.
uint32_t ByteBpe::byte_token(std::string_view text, size_t at, size_t begin) const {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte_tokens_[byte] < 0) {
        fail(Status::unsupported, "the tokenizer has no token for the byte 0x%02X (at byte %zu)",
             byte, begin + at);
    }
    return static_cast<uint32_t>(byte_tokens_[byte]);
}

// Adds the symbols of a text's characters, or of the bytes of those without a token.
void ByteBpe::add_characters(std::string_view text, size_t begin, const Watch &watch,
                             Word &symbols) const {
    constexpr size_t kLooks = 1024; // characters, more or less, between looks at the watch
    for (size_t at = 0; at < text.size();) {
        if (at % kLooks == 0) {
            watch.look(0, 0);
        }
        const size_t size = character_bytes(text, at);
        const std::string spelled(text[at] == ' ' ? kSpace : text.substr(at, size));
        const auto found = words_.find(spelled);
        for (size_t i = 0; i < (found == words_.end() ? size : 1); ++i) {
            const bool whole = found != words_.end();
            const auto place = static_cast<uint32_t>(symbols.symbols.size());
            symbols.symbols.push_back({whole ? found->second : byte_token(text, at + i, begin),
                                       place == 0 ? Word::kNone : place - 1, place + 1,
                                       whole ? static_cast<uint32_t>(size) : 1});
        }
        at += size;
    }
    if (!symbols.symbols.empty()) {
        symbols.symbols.back().next = Word::kNone;
    }
}

void ByteBpe::encode_word(std::string_view word, size_t begin, const Watch &watch, Word &symbols,
                          std::vector<TextToken> &out) const {
    // A whole word may be one token.
    if (ignore_merges_) {
        const auto found = words_.find(std::string(word));
        if (found != words_.end()) {
            out.push_back({found->second, begin, begin + word.size()});
            return;
        }
    }
    if (word.size() >= Word::kNone) {
        fail(Status::unsupported, "a word of the text has %zu bytes", word.size());
    }

    // The bytes are the first symbols, which then merge.
    symbols.symbols.clear();
    if (characters_) {
        add_characters(word, begin, watch, symbols);
    }
    for (uint32_t i = 0; !characters_ && i < word.size(); ++i) {
        symbols.symbols.push_back({byte_token(word, i, begin), i == 0 ? Word::kNone : i - 1,
                                   i + 1 == word.size() ? Word::kNone : i + 1, 1});
    }
    symbols.merge_all(merges_, watch);
    for (const Word::Symbol &symbol : symbols.symbols) {
        if (symbol.size_bytes > 0) {
            out.push_back({symbol.token, begin, begin + symbol.size_bytes});
            begin += symbol.size_bytes;
        }
    }
}

void ByteBpe::encode_words(const std::string &text, const Watch &watch,
                           std::vector<TextToken> &out) const {
    Word symbols;
    for (const std::string_view word : pretokenizer_.split(text, watch)) {
        encode_word(word, static_cast<size_t>(word.data() - text.data()), watch, symbols, out);
    }
}

void ByteBpe::encode(const std::string &text, const Watch &watch,
                     std::vector<TextToken> &out) const {
    if (!compose_ || !may_compose(text)) {
        encode_words(text, watch, out);
        return;
    }
    const ComposedText composed = compose(text);
    const size_t first = out.size();
    encode_words(composed.text, watch, out);
    for (size_t i = first; i < out.size(); ++i) {
        std::tie(out[i].begin, out[i].end) = composed.origin(out[i].begin, out[i].end);
    }
}

std::string ByteBpe::bytes(const std::string &spelling) const {
    if (!characters_) {
        const std::string out = alphabet().read(spelling);
        return out.empty() ? spelling : out;
    }
    std::string out;
    for (size_t at = 0; at < spelling.size();) {
        const bool space = std::string_view(spelling).substr(at).starts_with(kSpace);
        out += space ? ' ' : spelling[at];
        at += space ? kSpace.size() : 1;
    }
    return out;
}

std::vector<std::pair<std::string, std::string>> ByteBpe::rules() const {
    std::string patterns;
    for (const std::string &pattern : pretokenizer_.patterns()) {
        patterns += (patterns.empty() ? "" : "\n") + pattern;
    }
    std::vector<std::pair<std::string, std::string>> rules = {
        {"normalizer", compose_ ? "nfc" : "none"},
        {"pre_tokenizer", patterns},
        {"merges", std::to_string(merges_.size())},
        {"ignore_merges", ignore_merges_ ? "yes" : "no"}};
    if (characters_) {
        rules.emplace_back("symbols", "characters");
    }
    return rules;
}

void ByteBpe::hash(Sha256 &hash) const {
    for (const auto &[name, value] : rules()) {
        hash.text(name).text(value);
    }
    // The map has no order, so the merges are hashed by rank.
    std::vector<std::pair<uint64_t, Merge>> merges(merges_.begin(), merges_.end());
    std::sort(merges.begin(), merges.end(),
              [](const auto &a, const auto &b) { return a.second.rank < b.second.rank; });
    for (const auto &[pair, merge] : merges) {
        hash.u64(pair).u32(merge.token);
    }
}

} // namespace stasis
