// The parser of GBNF; see gbnf.h.
#include "runtime/constraint/gbnf.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "format/state/error.h"
#include "runtime/constraint/characters.h"
#include "runtime/constraint/hex.h"
#include "runtime/constraint/schema.h"

namespace stasis::constraint {

namespace {

bool is_name(char byte) {
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           (byte >= '0' && byte <= '9') || byte == '-' || byte == '_';
}

// Returns the beginning of the text that has an object's braces and strings, which may be no JSON
// in itself; empty if there is none.
std::string_view json_object(std::string_view text) {
    size_t open = 0;
    bool quoted = false;
    for (size_t at = 0; at < text.size() && (at == 0 ? text[0] == '{' : true); ++at) {
        const char byte = text[at];
        if (quoted) {
            at += byte == '\\' ? 1 : 0;
            quoted = byte != '"';
        } else if (byte == '"') {
            quoted = true;
        } else if (byte == '{') {
            ++open;
        } else if (byte == '}' && --open == 0) {
            return text.substr(0, at + 1);
        }
    }
    return "";
}

// One grammar, read from its start to its end by recursive descent.
class GbnfReader {
  public:
    GbnfReader(Grammar &grammar, std::string_view text) : grammar_(grammar), text_(text) {}

    void read() {
        skip_blanks(true);
        while (at_ < text_.size()) {
            read_rule();
        }
        for (const auto &[name, known] : rules_) {
            if (!known.defined) {
                fail(Status::invalid_argument,
                     "the grammar has no rule \"%s\", which byte %zu names", name.c_str(),
                     known.first);
            }
        }
        const auto root = rules_.find("root");
        if (root == rules_.end()) {
            fail(Status::invalid_argument, "the grammar has no rule \"root\"");
        }
        grammar_.root = root->second.rule;
    }

  private:
    struct Known {
        Rule rule = 0;
        size_t first = 0; // offset of the first mention
        bool defined = false;
    };

    [[noreturn]] void bad(const char *what) const {
        fail(Status::invalid_argument, "the grammar has %s at byte %zu", what, at_);
    }
    [[noreturn]] void refuse(const char *what) const {
        fail(Status::unsupported,
             "the grammar has %s at byte %zu, which constraints do not support", what, at_);
    }
    char peek(size_t ahead = 0) const {
        return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
    }
    bool take(char byte) {
        const bool found = at_ < text_.size() && text_[at_] == byte;
        at_ += found ? 1 : 0;
        return found;
    }
    // Skips blanks and comments, and ends of lines if they mean nothing here.
    void skip_blanks(bool lines) {
        while (at_ < text_.size()) {
            if (text_[at_] == '#') {
                while (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r') {
                    next_character(text_, at_);
                }
            } else if (text_[at_] == ' ' || text_[at_] == '\t' ||
                       (lines && (text_[at_] == '\n' || text_[at_] == '\r'))) {
                ++at_;
            } else {
                break;
            }
        }
    }
    std::string read_name() {
        const size_t begin = at_;
        while (at_ < text_.size() && is_name(text_[at_])) {
            ++at_;
        }
        if (at_ == begin) {
            bad("no name of a rule where one must be");
        }
        return std::string(text_.substr(begin, at_ - begin));
    }
    Known &known(const std::string &name, size_t offset) {
        const auto [found, added] = rules_.try_emplace(name);
        if (added) {
            found->second = {grammar_.add_rule(name), offset, false};
        }
        return found->second;
    }

    void read_rule();
    Part read_choice(uint32_t depth);
    Part read_sequence(uint32_t depth);
    Part read_item(uint32_t depth);
    Part read_repeats(Part part, bool lines);
    std::pair<uint32_t, uint32_t> read_counts();
    uint32_t read_count();
    Part read_literal();
    Part read_schema_item();
    Part read_class();
    uint32_t read_character();

    Grammar &grammar_;
    std::string_view text_;
    size_t at_ = 0;
    std::map<std::string, Known> rules_;
};

void GbnfReader::read_rule() {
    const size_t begin = at_;
    const std::string name = read_name();
    skip_blanks(false);
    if (text_.substr(at_, 3) != "::=") {
        bad("no ::= after the name of a rule");
    }
    at_ += 3;
    skip_blanks(true);
    if (known(name, begin).defined) {
        at_ = begin;
        bad("a second rule of the same name");
    }
    known(name, begin).defined = true;
    const Part body = read_choice(0);
    grammar_.rules[known(name, begin).rule].body = body;
    if (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r') {
        bad(text_[at_] == ')' ? "a ) that closes nothing" : "what no rule can contain");
    }
    skip_blanks(true);
}

Part GbnfReader::read_choice(uint32_t depth) {
    std::vector<Part> branches = {read_sequence(depth)};
    while (take('|')) {
        skip_blanks(true);
        branches.push_back(read_sequence(depth));
    }
    return branches.size() == 1 ? branches[0] : grammar_.choice(std::move(branches));
}

Part GbnfReader::read_sequence(uint32_t depth) {
    std::vector<Part> parts;
    while (peek() == '"' || peek() == '[' || peek() == '(' || peek() == '.' || peek() == '%' ||
           is_name(peek())) {
        const Part item = read_item(depth);
        parts.push_back(read_repeats(item, depth > 0));
    }
    if (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{') {
        bad("a repetition of nothing");
    }
    if (peek() == '<' || (peek() == '!' && peek(1) == '<')) {
        refuse("a token in place of a text");
    }
    return parts.size() == 1 ? parts[0] : grammar_.sequence(std::move(parts));
}

Part GbnfReader::read_item(uint32_t depth) {
    if (peek() == '"') {
        return read_literal();
    }
    if (peek() == '[') {
        return read_class();
    }
    if (peek() == '%') {
        return read_schema_item();
    }
    if (take('.')) {
        return one_of(grammar_, all_characters(), Spelling::utf8);
    }
    if (peek() == '(') {
        if (depth == kNestingMax) {
            refuse("groups nested too deep");
        }
        const size_t begin = at_++;
        skip_blanks(true);
        const Part part = read_choice(depth + 1);
        if (!take(')')) {
            at_ = begin;
            bad("a ( without its )");
        }
        return part;
    }
    const size_t begin = at_;
    const std::string name = read_name();
    return grammar_.call(known(name, begin).rule);
}

// Reads the repetitions after an item, of which there may be several, and the blanks after them.
Part GbnfReader::read_repeats(Part part, bool lines) {
    for (skip_blanks(lines);; skip_blanks(lines)) {
        if (take('*')) {
            part = grammar_.repeat(part, 0, kUnbounded);
        } else if (take('+')) {
            part = grammar_.repeat(part, 1, kUnbounded);
        } else if (take('?')) {
            part = grammar_.optional(part);
        } else if (peek() == '{') {
            const auto [min, max] = read_counts();
            part = grammar_.repeat(part, min, max);
        } else {
            return part;
        }
    }
}

std::pair<uint32_t, uint32_t> GbnfReader::read_counts() {
    const size_t begin = at_++;
    skip_blanks(false);
    const uint32_t min = read_count();
    uint32_t max = min;
    if (take(',')) {
        skip_blanks(false);
        max = peek() == '}' ? kUnbounded : read_count();
    }
    if (!take('}')) {
        bad("a repetition without its }");
    }
    if (max < min) {
        at_ = begin;
        bad("a repetition with its bounds reversed");
    }
    return {min, max};
}

uint32_t GbnfReader::read_count() {
    if (peek() < '0' || peek() > '9') {
        bad("a repetition without a number");
    }
    uint32_t count = 0;
    while (peek() >= '0' && peek() <= '9') {
        count = count * 10 + static_cast<uint32_t>(text_[at_] - '0');
        if (count > kCountMax) {
            refuse("a repetition of more than 1000000");
        }
        ++at_;
    }
    skip_blanks(false);
    return count;
}

Part GbnfReader::read_literal() {
    const size_t begin = at_++;
    std::string bytes;
    while (!take('"')) {
        if (at_ == text_.size() || text_[at_] == '\n') {
            at_ = begin;
            bad("a \" without its second one");
        }
        bytes += utf8(read_character());
    }
    return grammar_.literal(bytes);
}

// Reads %json and a schema, whose instances it means.
Part GbnfReader::read_schema_item() {
    constexpr std::string_view kWord = "%json";
    if (text_.substr(at_, kWord.size()) != kWord) {
        bad("a % that is not %json");
    }
    at_ += kWord.size();
    skip_blanks(false);
    const size_t begin = at_;
    const std::string_view schema = json_object(text_.substr(at_));
    if (schema.empty()) {
        bad("no JSON object after %json");
    }
    at_ += schema.size();
    try {
        read_schema(grammar_, schema);
    } catch (const Error &error) {
        fail(error.status(), "the schema at byte %zu of the grammar: %s", begin, error.what());
    }
    return grammar_.call(grammar_.root);
}

Part GbnfReader::read_class() {
    const size_t begin = at_++;
    const bool negated = take('^');
    Characters set;
    while (!take(']')) {
        if (at_ == text_.size()) {
            at_ = begin;
            bad("a [ without its ]");
        }
        const size_t item = at_;
        const uint32_t low = read_character();
        uint32_t high = low;
        if (peek() == '-' && peek(1) != ']' && at_ + 1 < text_.size()) {
            ++at_;
            high = read_character();
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
    return one_of(grammar_, negated ? set.complement() : set, Spelling::utf8);
}

// Reads one character of a literal or a class, or its escape.
uint32_t GbnfReader::read_character() {
    if (peek() != '\\') {
        return next_character(text_, at_);
    }
    static constexpr std::string_view kLetters = "tnr\\\"[]", kMeanings = "\t\n\r\\\"[]";
    const size_t begin = at_;
    const char letter = peek(1);
    const size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    if (digits == 0) {
        const size_t found = letter == '\0' ? std::string_view::npos : kLetters.find(letter);
        if (found == std::string_view::npos) {
            bad("an unknown escape");
        }
        at_ += 2;
        return static_cast<uint32_t>(kMeanings[found]);
    }
    const uint32_t character = read_hex(text_, at_ += 2, digits, "the grammar");
    if (character > 0x10FFFF || (character >= 0xD800 && character < 0xE000)) {
        at_ = begin;
        bad("an escape that is no character");
    }
    return character;
}

} // namespace

void read_gbnf(Grammar &grammar, std::string_view text) {
    GbnfReader(grammar, text).read();
}

} // namespace stasis::constraint
