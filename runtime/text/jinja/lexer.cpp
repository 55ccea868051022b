// Cuts a template into text and tokens. Whitespace rules are those of the Jinja manual ("Whitespace
// Control") with trim_blocks and lstrip_blocks on and keep_trailing_newline off.
#include <algorithm>
#include <cctype>

#include "format/state/error.h"
#include "runtime/text/jinja/syntax.h"

namespace stasis::jinja {

namespace {

constexpr size_t kSourceMax = 256 << 10; // bytes; the longest published templates have 20 000

bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v';
}
bool is_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}
bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

void append_utf8(uint32_t c, std::string &out) {
    if (c < 0x80) {
        out += static_cast<char>(c);
    } else if (c < 0x800) {
        out += static_cast<char>(0xC0 | c >> 6);
        out += static_cast<char>(0x80 | (c & 0x3F));
    } else {
        out += static_cast<char>(0xE0 | c >> 12);
        out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
        out += static_cast<char>(0x80 | (c & 0x3F));
    }
}

class Lexer {
  public:
    explicit Lexer(std::string_view source) {
        if (source.size() > kSourceMax) {
            fail(Status::unsupported, "chat template: %zu bytes long, at most %zu are read",
                 source.size(), kSourceMax);
        }

        // Line ends become \n, and the last one is dropped.
        source_.reserve(source.size());
        for (size_t i = 0; i < source.size(); ++i) {
            if (source[i] == '\r') {
                source_ += '\n';
                i += i + 1 < source.size() && source[i + 1] == '\n' ? 1 : 0;
            } else {
                source_ += source[i];
            }
        }
        if (!source_.empty() && source_.back() == '\n') {
            source_.pop_back();
        }
    }

    std::vector<Token> run() {
        while (at_ < source_.size()) {
            const size_t tag = find_tag();
            lex_text(tag);
            if (tag < source_.size()) {
                lex_tag();
            }
        }
        add(Token::Kind::end, "");
        return std::move(tokens_);
    }

  private:
    [[noreturn]] void bad(const char *what) const {
        fail(Status::unsupported, "chat template, line %zu: %s", line_, what);
    }

    void add(Token::Kind kind, std::string text) {
        tokens_.push_back({kind, std::move(text), line_});
    }

    bool ahead(std::string_view text) const {
        return std::string_view(source_).substr(at_, text.size()) == text;
    }

    void advance(size_t count) {
        line_ += static_cast<size_t>(
            std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                       source_.begin() + static_cast<std::ptrdiff_t>(at_ + count), '\n'));
        at_ += count;
    }

    size_t find_tag() const {
        for (size_t i = at_; i + 1 < source_.size(); ++i) {
            if (source_[i] == '{' &&
                (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#')) {
                return i;
            }
        }
        return source_.size();
    }

    // Adds the text up to `tag`, without the whitespace that the tags on both sides remove.
    void lex_text(size_t tag) {
        std::string_view text = std::string_view(source_).substr(at_, tag - at_);
        const size_t taken = text.size();
        const bool line_starts = at_ == 0 || source_[at_ - 1] == '\n';
        if (strip_next_) {
            while (!text.empty() && is_blank(text.front())) {
                text.remove_prefix(1);
            }
        }
        const char mark = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
        if (tag < source_.size() && mark == '-') {
            while (!text.empty() && is_blank(text.back())) {
                text.remove_suffix(1);
            }
        } else if (tag < source_.size() && mark != '+' && source_[tag + 1] != '{') {
            lstrip(text, line_starts);
        }
        if (!text.empty()) {
            add(Token::Kind::text, std::string(text));
        }
        advance(taken);
    }

    // Removes blanks between the start of a line and a block tag.
    static void lstrip(std::string_view &text, bool line_starts) {
        const size_t newline = text.rfind('\n');
        if (newline == std::string_view::npos && !line_starts) {
            return;
        }
        const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
        if (std::all_of(text.begin() + static_cast<std::ptrdiff_t>(begin), text.end(), is_blank)) {
            text = text.substr(0, begin);
        }
    }

    void lex_tag() {
        const char type = source_[at_ + 1];
        advance(2);
        if (ahead("-") || ahead("+")) {
            advance(1);
        }
        // A comment has no tokens.
        if (type == '#') {
            const size_t end = source_.find("#}", at_);
            if (end == std::string::npos) {
                bad("a comment does not end");
            }
            const char mark = end > at_ ? source_[end - 1] : '\0';
            advance(end + 2 - at_);
            finish_tag(mark, true);
            return;
        }

        // Tokens up to the end of the tag.
        add(type == '{' ? Token::Kind::output : Token::Kind::block, "");
        const std::string close = type == '{' ? "}}" : "%}";
        size_t braces = 0; // open braces of dict literals; "}}" inside them does not close a tag
        while (true) {
            while (at_ < source_.size() && is_blank(source_[at_])) {
                advance(1);
            }
            if (at_ >= source_.size()) {
                bad("a tag does not end");
            }
            const bool marked = ahead("-" + close) || ahead("+" + close);
            if (braces == 0 && (marked || ahead(close))) {
                const char mark = marked ? source_[at_] : '\0';
                advance(close.size() + (marked ? 1 : 0));
                add(Token::Kind::close, "");
                finish_tag(mark, type == '%');
                return;
            }
            lex_expression(braces);
        }
    }

    void finish_tag(char mark, bool trims_newline) {
        strip_next_ = mark == '-';
        if (trims_newline && mark != '-' && mark != '+' && ahead("\n")) {
            advance(1);
        }
    }

    void lex_expression(size_t &braces) {
        const char c = source_[at_];
        size_t end = at_;
        // A string, a number, a name or a symbol.
        if (c == '"' || c == '\'') {
            lex_string(c);
            return;
        }
        if (is_digit(c)) {
            while (end < source_.size() &&
                   (is_digit(source_[end]) || (source_[end] == '.' && end + 1 < source_.size() &&
                                               is_digit(source_[end + 1])))) {
                ++end;
            }
            add(Token::Kind::number, source_.substr(at_, end - at_));
        } else if (is_word(c)) {
            while (end < source_.size() && is_word(source_[end])) {
                ++end;
            }
            add(Token::Kind::name, source_.substr(at_, end - at_));
        } else {
            static constexpr std::string_view kDouble[] = {"==", "!=", "<=", ">=", "//", "**"};
            static constexpr std::string_view kSingle = "+-*/%~()[]{},:.<>=|";
            const bool two = std::any_of(std::begin(kDouble), std::end(kDouble),
                                         [&](std::string_view s) { return ahead(s); });
            if (!two && kSingle.find(c) == std::string_view::npos) {
                bad("a character that no expression has");
            }
            end = at_ + (two ? 2 : 1);
            braces += c == '{' ? 1 : 0;
            braces -= c == '}' && braces > 0 ? 1 : 0;
            add(Token::Kind::symbol, source_.substr(at_, end - at_));
        }
        advance(end - at_);
    }

    void lex_string(char quote) {
        std::string text;
        size_t i = at_ + 1;
        for (; i < source_.size() && source_[i] != quote; ++i) {
            if (source_[i] != '\\' || i + 1 == source_.size()) {
                text += source_[i];
            } else {
                ++i;
                lex_escape(i, text);
            }
        }
        if (i >= source_.size()) {
            bad("a string does not end");
        }
        add(Token::Kind::string, std::move(text));
        advance(i + 1 - at_);
    }

    // Adds one of Python's escapes; `i` is at the character after the backslash and ends on the
    // last one.
    void lex_escape(size_t &i, std::string &text) const {
        static constexpr std::string_view kEscape = "ntrbfv0\\'\"",
                                          kMeaning = std::string_view("\n\t\r\b\f\v\0\\'\"", 10);
        const char c = source_[i];
        const size_t known = kEscape.find(c);
        const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 0;
        if (known != std::string_view::npos) {
            text += kMeaning[known];
        } else if (digits > 0) {
            uint32_t code = 0;
            for (size_t n = 0; n < digits; ++n) {
                ++i;
                if (i >= source_.size() ||
                    std::isxdigit(static_cast<unsigned char>(source_[i])) == 0) {
                    bad("an escape in a string lacks digits");
                }
                const char digit = source_[i];
                code = code * 16 + static_cast<uint32_t>(is_digit(digit) ? digit - '0'
                                                                         : (digit | 32) - 'a' + 10);
            }
            append_utf8(code, text);
            // A backslash before a newline joins the lines.
        } else if (c != '\n') {
            text += '\\';
            text += c;
        }
    }

    std::string source_;
    size_t at_ = 0, line_ = 1;
    bool strip_next_ = false;
    std::vector<Token> tokens_;
};

} // namespace

std::vector<Token> split_tokens(std::string_view source) {
    return Lexer(source).run();
}

} // namespace stasis::jinja
