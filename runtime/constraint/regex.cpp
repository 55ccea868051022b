// The parser of regular expressions; see regex.h.
#include "runtime/constraint/regex.h"

#include <optional>
#include <utility>

#include "format/state/error.h"
#include "runtime/constraint/hex.h"

namespace stasis::constraint {

namespace {

Characters ascii(std::initializer_list<Characters::Range> ranges) {
    return {ranges};
}

// Returns the set of \d, \w, \s and their complements; nothing for another letter.
std::optional<Characters> named_set(char letter) {
    switch (letter) {
    case 'd':
        return ascii({{'0', '9'}});
    case 'w':
        return ascii({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
    case 's':
        return ascii({{'\t', '\r'}, {' ', ' '}});
    case 'D':
        return named_set('d')->complement();
    case 'W':
        return named_set('w')->complement();
    case 'S':
        return named_set('s')->complement();
    default:
        return std::nullopt;
    }
}

// One expression, read from its start to its end by recursive descent.
class RegexReader {
  public:
    RegexReader(Grammar &grammar, std::string_view text, RegexUse use)
        : grammar_(grammar), text_(text), search_(use == RegexUse::pattern),
          spelling_(search_ ? Spelling::json : Spelling::utf8) {}

    Part read() {
        const Part part = read_choice(0);
        if (at_ < text_.size()) {
            bad("a ) that closes nothing");
        }
        return part;
    }

  private:
    [[noreturn]] void bad(const char *what) const {
        fail(Status::invalid_argument, "the regular expression has %s at byte %zu", what, at_);
    }
    [[noreturn]] void refuse(const char *what) const {
        fail(Status::unsupported,
             "the regular expression has %s at byte %zu, which constraints do not support", what,
             at_);
    }
    char peek(size_t ahead = 0) const {
        return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
    }
    bool take(char byte) {
        const bool found = at_ < text_.size() && text_[at_] == byte;
        at_ += found ? 1 : 0;
        return found;
    }
    Part characters(const Characters &set) { return one_of(grammar_, set, spelling_); }
    Part single(uint32_t character) { return characters(ascii({{character, character}})); }
    Part anything() { return grammar_.repeat(characters(all_characters()), 0, kUnbounded); }

    Part read_choice(uint32_t depth);
    Part read_branch(uint32_t depth);
    Part read_atom(uint32_t depth);
    Part read_group(uint32_t depth);
    Part read_repeats(Part part);
    std::optional<std::pair<uint32_t, uint32_t>> read_repeat();
    std::pair<uint32_t, uint32_t> read_counts();
    uint32_t read_count();
    Characters read_class();
    std::optional<Characters> read_class_item(uint32_t &single);
    uint32_t read_escape(bool in_class);
    uint32_t read_unicode();

    Grammar &grammar_;
    std::string_view text_;
    bool search_;
    Spelling spelling_;
    size_t at_ = 0;
};

Part RegexReader::read_choice(uint32_t depth) {
    std::vector<Part> branches;
    do {
        branches.push_back(read_branch(depth));
    } while (take('|'));
    return branches.size() == 1 ? branches[0] : grammar_.choice(std::move(branches));
}

// Anchors are read where the whole expression's branches begin and end, and refused elsewhere.
Part RegexReader::read_branch(uint32_t depth) {
    std::vector<Part> parts;
    const bool begins = depth == 0 && take('^');
    if (search_ && depth == 0 && !begins) {
        parts.push_back(anything());
    }
    bool ends = false;
    while (at_ < text_.size() && text_[at_] != '|' && text_[at_] != ')') {
        const bool last = at_ + 1 == text_.size() || text_[at_ + 1] == '|';
        if (depth == 0 && text_[at_] == '$' && last) {
            ++at_;
            ends = true;
            break;
        }
        parts.push_back(read_repeats(read_atom(depth)));
    }
    if (search_ && depth == 0 && !ends) {
        parts.push_back(anything());
    }
    return parts.size() == 1 ? parts[0] : grammar_.sequence(std::move(parts));
}

Part RegexReader::read_atom(uint32_t depth) {
    switch (text_[at_]) {
    case '(':
        return read_group(depth);
    case '[':
        return characters(read_class());
    case '.':
        ++at_;
        return characters(ascii({{'\n', '\n'}}).complement());
    case '^':
    case '$':
        refuse("an anchor inside");
    case '*':
    case '+':
    case '?':
    case '{':
        bad("a repetition of nothing (a plain one is written with a \\ before it)");
    case ']':
    case '}':
        bad("a bracket that closes nothing (a plain one is written with a \\ before it)");
    case '\\':
        if (const std::optional<Characters> set = named_set(peek(1))) {
            at_ += 2;
            return characters(*set);
        }
        return single(read_escape(false));
    default:
        return single(next_character(text_, at_));
    }
}

Part RegexReader::read_group(uint32_t depth) {
    if (depth == kNestingMax) {
        refuse("groups nested too deep");
    }
    if (peek(1) == '?' && peek(2) != ':') {
        refuse(peek(2) == '=' || peek(2) == '!'                       ? "a look ahead"
               : peek(2) == '<' && (peek(3) == '=' || peek(3) == '!') ? "a look behind"
               : peek(2) == '<' || peek(2) == 'P'                     ? "a named group"
                                                  : "an option or special group");
    }
    const size_t begin = at_;
    at_ += peek(1) == '?' ? 3 : 1;
    const Part part = read_choice(depth + 1);
    if (!take(')')) {
        at_ = begin;
        bad("a ( without its )");
    }
    return part;
}

Part RegexReader::read_repeats(Part part) {
    if (const auto counts = read_repeat()) {
        part = grammar_.repeat(part, counts->first, counts->second);
        take('?'); // as few as possible: the same texts
        if (peek() == '+') {
            refuse("a possessive repetition");
        }
        if (peek() == '*' || peek() == '?' || peek() == '{') {
            bad("a repetition of a repetition (write a group)");
        }
    }
    return part;
}

// Returns how often what was read may occur; nothing if no repetition follows.
std::optional<std::pair<uint32_t, uint32_t>> RegexReader::read_repeat() {
    if (take('*')) {
        return std::pair{0U, kUnbounded};
    }
    if (take('+')) {
        return std::pair{1U, kUnbounded};
    }
    if (take('?')) {
        return std::pair{0U, 1U};
    }
    return peek() == '{' ? std::optional(read_counts()) : std::nullopt;
}

std::pair<uint32_t, uint32_t> RegexReader::read_counts() {
    const size_t begin = at_++;
    const uint32_t min = read_count();
    uint32_t max = min;
    if (take(',')) {
        max = peek() == '}' ? kUnbounded : read_count();
    }
    if (!take('}')) {
        at_ = begin;
        bad("a { that begins no repetition (a plain one is written with a \\ before it)");
    }
    if (max < min) {
        at_ = begin;
        bad("a repetition with its bounds reversed");
    }
    return {min, max};
}

uint32_t RegexReader::read_count() {
    if (peek() < '0' || peek() > '9') {
        bad("a { that begins no repetition (a plain one is written with a \\ before it)");
    }
    uint32_t count = 0;
    while (peek() >= '0' && peek() <= '9') {
        count = count * 10 + static_cast<uint32_t>(text_[at_] - '0');
        if (count > kCountMax) {
            refuse("a repetition of more than 1000000");
        }
        ++at_;
    }
    return count;
}

Characters RegexReader::read_class() {
    const size_t begin = at_++;
    const bool negated = take('^');
    Characters set;
    while (peek() != ']') {
        if (at_ == text_.size()) {
            at_ = begin;
            bad("a [ without its ]");
        }
        uint32_t low = 0, high = 0;
        const size_t item = at_;
        if (const std::optional<Characters> named = read_class_item(low)) {
            set.add(*named);
            continue;
        }
        high = low;
        if (peek() == '-' && peek(1) != ']' && at_ + 1 < text_.size()) {
            ++at_;
            if (read_class_item(high)) {
                at_ = item;
                bad("a range that ends in a set");
            }
        }
        if (high < low) {
            at_ = item;
            bad("a range with its ends reversed");
        }
        set.add(low, high);
    }
    if (set.ranges.empty()) {
        at_ = begin;
        refuse("an empty class");
    }
    ++at_;
    return negated ? set.complement() : set;
}

// Returns the set of an escape such as \d; nothing for a single character, which it sets.
std::optional<Characters> RegexReader::read_class_item(uint32_t &single) {
    if (peek() == '\\') {
        if (const std::optional<Characters> set = named_set(peek(1))) {
            at_ += 2;
            return set;
        }
        single = read_escape(true);
        return std::nullopt;
    }
    if (peek() == '[' && (peek(1) == ':' || peek(1) == '.' || peek(1) == '=')) {
        refuse("a named class");
    }
    single = next_character(text_, at_);
    return std::nullopt;
}

// Reads an escape that means one character.
uint32_t RegexReader::read_escape(bool in_class) {
    static constexpr std::string_view kLetters = "tnrfv", kMeanings = "\t\n\r\f\v";
    const char letter = peek(1);
    const size_t found = kLetters.find(letter);
    const bool word = (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
                      (letter >= 'A' && letter <= 'Z') || static_cast<uint8_t>(letter) >= 0x80;
    if (at_ + 1 == text_.size()) {
        bad("a \\ at its end");
    }
    if (letter == 'x') {
        return read_hex(text_, at_ += 2, 2, "the regular expression");
    }
    if (letter == 'u') {
        return read_unicode();
    }
    if (letter == 'b' && in_class) {
        at_ += 2;
        return '\b';
    }
    if (letter == 'b' || letter == 'B') {
        refuse("a word boundary");
    }
    if (letter == 'p' || letter == 'P') {
        refuse("a class of Unicode");
    }
    if (letter >= '1' && letter <= '9') {
        refuse("a reference to a group");
    }
    if (found == std::string_view::npos && word) {
        refuse("an unknown escape");
    }
    at_ += 2;
    return found != std::string_view::npos ? static_cast<uint32_t>(kMeanings[found])
                                           : static_cast<uint32_t>(letter);
}

// Reads \u and four digits, two of these that are a surrogate pair, or \u{...}.
uint32_t RegexReader::read_unicode() {
    const size_t begin = at_;
    uint32_t character = 0;
    if (peek(2) == '{') {
        const size_t close = text_.find('}', at_);
        const size_t digits = close == std::string_view::npos ? 0 : close - at_ - 3;
        if (digits < 1 || digits > 6) {
            bad("an escape \\u{ without one to six digits and }");
        }
        character = read_hex(text_, at_ += 3, digits, "the regular expression");
        ++at_;
    } else {
        character = read_hex(text_, at_ += 2, 4, "the regular expression");
        if (character >= 0xD800 && character < 0xDC00 && peek() == '\\' && peek(1) == 'u') {
            const uint32_t low = read_hex(text_, at_ += 2, 4, "the regular expression");
            character = low >= 0xDC00 && low < 0xE000
                            ? 0x10000 + ((character - 0xD800) << 10U) + (low - 0xDC00)
                            : character;
        }
    }
    if (character > 0x10FFFF || (character >= 0xD800 && character < 0xE000)) {
        at_ = begin;
        bad("an escape that is no character");
    }
    return character;
}

} // namespace

Part read_regex(Grammar &grammar, std::string_view text, RegexUse use) {
    return RegexReader(grammar, text, use).read();
}

} // namespace stasis::constraint
