// Converts values to text by Python's rules: printing, JSON, characters and whitespace.
#include "runtime/text/jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "format/state/error.h"

namespace stasis::jinja {

namespace {

size_t character_size(std::string_view text, size_t at) {
    const auto lead = static_cast<unsigned char>(text[at]);
    const size_t size = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    return std::min(size, text.size() - at);
}

uint32_t code_point(std::string_view character) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(character[i]); };
    switch (character.size()) {
    case 1:
        return byte(0);
    case 2:
        return (byte(0) & 0x1FU) << 6 | (byte(1) & 0x3FU);
    case 3:
        return (byte(0) & 0x0FU) << 12 | (byte(1) & 0x3FU) << 6 | (byte(2) & 0x3FU);
    default:
        return 0; // no character outside the basic plane matters for whitespace
    }
}

// Reports whether Python's str.isspace accepts a character: bidirectional type WS, B or S, or
// category Zs (Unicode 15).
bool is_space(std::string_view character) {
    const uint32_t c = code_point(character);
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

// Appends a float as Python's repr writes it: the shortest digits, with an exponent from 1e16 on
// and below 1e-4.
void append_number(double value, std::string &out) {
    const double size = std::fabs(value);
    const bool scientific = size >= 1e16 || (size != 0.0 && size < 1e-4);
    char text[40];
    const auto end =
        std::to_chars(text, text + sizeof text, value,
                      scientific ? std::chars_format::scientific : std::chars_format::fixed)
            .ptr;
    out.append(text, end);
    if (std::isfinite(value) && !scientific && std::find(text, end, '.') == end) {
        out += ".0";
    }
}

constexpr char kHex[] = "0123456789abcdef";

void append_hex(uint32_t value, int digits, std::string &out) {
    for (int i = digits; i-- > 0;) {
        out += kHex[value >> (4 * i) & 15];
    }
}

// Appends "\uXXXX" for a character outside ASCII; two of them outside the basic plane.
void append_ascii(std::string_view character, std::string &out) {
    uint32_t c = static_cast<unsigned char>(character[0]);
    if (character.size() > 1) {
        c &= character.size() == 2 ? 0x1FU : character.size() == 3 ? 0x0FU : 0x07U;
        for (const char next : character.substr(1)) {
            c = c << 6 | (static_cast<unsigned char>(next) & 0x3FU);
        }
    }
    if (c >= 0x10000) {
        out += "\\u";
        append_hex(0xD800 + ((c - 0x10000) >> 10), 4, out);
        c = 0xDC00 + ((c - 0x10000) & 0x3FF);
    }
    out += "\\u";
    append_hex(c, 4, out);
}

void append_json_string(std::string_view text, bool ascii, std::string &out) {
    out += '"';
    for (size_t at = 0; at < text.size();) {
        static constexpr std::string_view kPlain = "\"\\\n\r\t\b\f", kEscape = "\"\\nrtbf";
        const char c = text[at];
        const size_t known = kPlain.find(c), size = character_size(text, at);
        if (known != std::string_view::npos) {
            out += '\\';
            out += kEscape[known];
        } else if (static_cast<unsigned char>(c) < 0x20) {
            out += "\\u00";
            append_hex(static_cast<unsigned char>(c), 2, out);
        } else if (ascii && static_cast<unsigned char>(c) >= 0x7F) {
            append_ascii(text.substr(at, size), out);
        } else {
            out.append(text, at, size);
        }
        at += size;
    }
    out += '"';
}

// Appends Python's repr, for lists and dicts inside {{ }}.
void append_repr(const Value &value, std::string &out, Budget &budget) {
    const std::string *text = value.text();
    if (text == nullptr) {
        append_text(value, out, budget);
        return;
    }
    budget.spend(text->size());
    const bool apostrophes = text->find('\'') != std::string::npos;
    const char quote = apostrophes && text->find('"') == std::string::npos ? '"' : '\'';
    out += quote;
    for (const std::string_view character : characters(*text)) {
        static constexpr std::string_view kPlain = "\n\r\t\\", kEscape = "nrt\\";
        const char c = character[0];
        const size_t known = kPlain.find(c);
        const uint32_t code = character.size() <= 2 ? code_point(character) : 0x100;
        if (known != std::string_view::npos || c == quote) {
            out += '\\';
            out += c == quote ? c : kEscape[known];
        } else if (code < 0x20 || (code >= 0x7F && code <= 0xA0) || code == 0xAD) {
            out += "\\x";
            append_hex(code, 2, out);
        } else {
            out += character;
        }
    }
    out += quote;
}

// Containers hold each element on a line of its own if the indent is not negative.
class JsonWriter {
  public:
    JsonWriter(const JsonStyle &style, std::string &out, Budget &budget)
        : style_(style), out_(out), budget_(budget) {}

    void write(const Value &value, size_t level) {
        budget_.spend(1);
        if (const ListValue *list = value.list()) {
            write_list(*list, level);
        } else if (const DictValue *dict = value.dict()) {
            write_dict(*dict, level);
        } else if (const std::string *text = value.text()) {
            write_string(*text);
        } else if (value.is<bool>()) {
            out_ += value.as<bool>() ? "true" : "false";
        } else if (value.is<None>()) {
            out_ += "null";
        } else if (value.is_number()) {
            append_text(value, out_, budget_);
        } else {
            fail(Status::unsupported, "chat template: %s cannot be written as JSON",
                 type_name(value));
        }
    }

  private:
    void newline(size_t level) {
        if (style_.indent >= 0) {
            const size_t blanks = static_cast<size_t>(style_.indent) * level;
            budget_.spend(blanks);
            out_ += '\n';
            out_.append(blanks, ' ');
        }
    }
    void write_string(const std::string &text) {
        budget_.spend(text.size());
        append_json_string(text, style_.ascii, out_);
    }
    void separate(bool first, size_t level) {
        budget_.spend(style_.between.size());
        out_ += first ? "" : style_.between;
        newline(level);
    }
    void write_list(const ListValue &list, size_t level) {
        out_ += '[';
        for (const Value &item : list.items) {
            separate(&item == list.items.data(), level + 1);
            write(item, level + 1);
        }
        if (!list.items.empty()) {
            newline(level);
        }
        out_ += ']';
    }
    void write_dict(const DictValue &dict, size_t level) {
        std::vector<const std::pair<std::string, Value> *> items;
        for (const auto &item : dict.items) {
            budget_.spend(1);
            items.push_back(&item);
        }
        if (style_.sorted) {
            std::sort(items.begin(), items.end(),
                      [](const auto *a, const auto *b) { return a->first < b->first; });
        }
        out_ += '{';
        for (const auto *item : items) {
            separate(item == items.front(), level + 1);
            write_string(item->first);
            budget_.spend(style_.after_key.size());
            out_ += style_.after_key;
            write(item->second, level + 1);
        }
        if (!items.empty()) {
            newline(level);
        }
        out_ += '}';
    }

    const JsonStyle &style_;
    std::string &out_;
    Budget &budget_;
};

} // namespace

void append_text(const Value &value, std::string &out, Budget &budget) {
    budget.spend(1);
    if (const std::string *text = value.text()) {
        budget.spend(text->size());
        out += *text;
        // The scalars as Python prints them, then containers with the repr of their elements.
    } else if (value.is<None>()) {
        out += "None";
    } else if (value.is<bool>()) {
        out += value.as<bool>() ? "True" : "False";
    } else if (value.is<int64_t>()) {
        out += std::to_string(value.as<int64_t>());
    } else if (value.is<double>()) {
        append_number(value.as<double>(), out);
    } else if (const ListValue *list = value.list()) {
        out += '[';
        for (size_t i = 0; i < list->items.size(); ++i) {
            out += i > 0 ? ", " : "";
            append_repr(list->items[i], out, budget);
        }
        out += ']';
    } else if (const DictValue *dict = value.dict()) {
        out += '{';
        for (size_t i = 0; i < dict->items.size(); ++i) {
            out += i > 0 ? ", " : "";
            append_repr(Value(dict->items[i].first), out, budget);
            out += ": ";
            append_repr(dict->items[i].second, out, budget);
        }
        out += '}';
    } else if (!value.is<Undefined>()) {
        fail(Status::unsupported, "chat template: %s cannot be printed", type_name(value));
    }
}

std::string to_text(const Value &value, Budget &budget) {
    std::string out;
    append_text(value, out, budget);
    return out;
}

std::string to_json(const Value &value, const JsonStyle &style, Budget &budget) {
    std::string out;
    JsonWriter(style, out, budget).write(value, 0);
    return out;
}

std::vector<std::string_view> characters(std::string_view text) {
    std::vector<std::string_view> out;
    for (size_t at = 0; at < text.size();) {
        const size_t size = character_size(text, at);
        out.push_back(text.substr(at, size));
        at += size;
    }
    return out;
}

std::string_view strip(std::string_view text, bool left, bool right, const std::string *set) {
    const auto stripped = [&](std::string_view character) {
        return set == nullptr ? is_space(character) : set->find(character) != std::string::npos;
    };
    while (left && !text.empty()) {
        const size_t size = character_size(text, 0);
        if (!stripped(text.substr(0, size))) {
            break;
        }
        text.remove_prefix(size);
    }
    while (right && !text.empty()) {
        // The last character begins at its lead byte.
        size_t begin = text.size() - 1;
        while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) {
            --begin;
        }
        if (!stripped(text.substr(begin))) {
            break;
        }
        text.remove_suffix(text.size() - begin);
    }
    return text;
}

} // namespace stasis::jinja
