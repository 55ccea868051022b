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

void append_number(double value, std::string &out) {
    char text[40];
    const auto end = std::to_chars(text, text + sizeof text, value).ptr;
    out.append(text, end);
    if (std::isfinite(value) && std::find(text, end, '.') == end &&
        std::find(text, end, 'e') == end) {
        out += ".0";
    }
}

void append_json_string(std::string_view text, std::string &out) {
    out += '"';
    for (const char c : text) {
        static constexpr std::string_view kPlain = "\"\\\n\r\t\b\f", kEscape = "\"\\nrtbf";
        const size_t known = kPlain.find(c);
        if (known != std::string_view::npos) {
            out += '\\';
            out += kEscape[known];
        } else if (static_cast<unsigned char>(c) < 0x20) {
            static constexpr char kHex[] = "0123456789abcdef";
            out += "\\u00";
            out += kHex[c >> 4];
            out += kHex[c & 15];
        } else {
            out += c;
        }
    }
    out += '"';
}

// Appends Python's repr, for lists and dicts inside {{ }}; quotes only as far as templates need
// them.
void append_repr(const Value &value, std::string &out, Budget &budget) {
    if (const std::string *text = value.text()) {
        budget.spend(text->size());
        const char quote = text->find('\'') != std::string::npos ? '"' : '\'';
        out += quote + *text + quote;
    } else {
        append_text(value, out, budget);
    }
}

void append_json(const Value &value, int indent, int level, std::string &out, Budget &budget) {
    budget.spend(1);
    const auto newline = [&](int at) {
        if (indent >= 0) {
            budget.spend(static_cast<size_t>(indent) * static_cast<size_t>(at));
            out += '\n';
            out.append(static_cast<size_t>(indent) * static_cast<size_t>(at), ' ');
        }
    };
    const char *separator = indent >= 0 ? "," : ", ";

    // Containers: each element on a line of its own if `indent` is not negative.
    if (const ListValue *list = value.list()) {
        out += '[';
        for (size_t i = 0; i < list->items.size(); ++i) {
            out += i > 0 ? separator : "";
            newline(level + 1);
            append_json(list->items[i], indent, level + 1, out, budget);
        }
        if (!list->items.empty()) {
            newline(level);
        }
        out += ']';
    } else if (const DictValue *dict = value.dict()) {
        out += '{';
        for (size_t i = 0; i < dict->items.size(); ++i) {
            out += i > 0 ? separator : "";
            newline(level + 1);
            budget.spend(dict->items[i].first.size());
            append_json_string(dict->items[i].first, out);
            out += ": ";
            append_json(dict->items[i].second, indent, level + 1, out, budget);
        }
        if (!dict->items.empty()) {
            newline(level);
        }
        out += '}';
        // Scalars.
    } else if (const std::string *text = value.text()) {
        budget.spend(text->size());
        append_json_string(*text, out);
    } else if (value.is<bool>()) {
        out += value.as<bool>() ? "true" : "false";
    } else if (value.is<None>()) {
        out += "null";
    } else if (value.is_number()) {
        append_text(value, out, budget);
    } else {
        fail(Status::unsupported, "chat template: %s cannot be written as JSON", type_name(value));
    }
}

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

std::string to_json(const Value &value, int indent, Budget &budget) {
    std::string out;
    append_json(value, indent, 0, out, budget);
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
