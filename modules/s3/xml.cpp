// Reading XML; see xml.h.
#include "modules/s3/xml.h"

#include <charconv>
#include <cstdint>

namespace stasis_s3 {

namespace {

constexpr int kDepthMax = 8;

bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == ':' || c == '.';
}

void append_utf8(std::string &out, uint32_t code) {
    if (code < 0x80) {
        out += static_cast<char>(code);
    } else if (code < 0x800) {
        out += static_cast<char>(0xC0 | code >> 6);
        out += static_cast<char>(0x80 | (code & 63));
    } else if (code < 0x10000) {
        out += static_cast<char>(0xE0 | code >> 12);
        out += static_cast<char>(0x80 | (code >> 6 & 63));
        out += static_cast<char>(0x80 | (code & 63));
    } else {
        out += static_cast<char>(0xF0 | code >> 18);
        out += static_cast<char>(0x80 | (code >> 12 & 63));
        out += static_cast<char>(0x80 | (code >> 6 & 63));
        out += static_cast<char>(0x80 | (code & 63));
    }
}

struct Reader {
    std::string_view rest;

    bool take(std::string_view what) {
        const bool found = rest.starts_with(what);
        rest.remove_prefix(found ? what.size() : 0);
        return found;
    }
    void skip_spaces() {
        while (!rest.empty() && is_space(rest.front())) {
            rest.remove_prefix(1);
        }
    }
    std::string_view name() {
        size_t length = 0;
        while (length < rest.size() && is_name(rest[length])) {
            ++length;
        }
        const std::string_view found = rest.substr(0, length);
        rest.remove_prefix(length);
        return found;
    }
    // Attributes, of which nothing is kept.
    bool skip_attributes() {
        for (skip_spaces(); !rest.empty() && is_name(rest.front()); skip_spaces()) {
            name();
            skip_spaces();
            if (!take("=")) {
                return false;
            }
            skip_spaces();
            const char quote = rest.empty() ? '\0' : rest.front();
            const size_t end = rest.find(quote, 1);
            if ((quote != '"' && quote != '\'') || end == rest.npos) {
                return false;
            }
            rest.remove_prefix(end + 1);
        }
        return true;
    }
    // What follows '&'.
    bool entity(std::string &out) {
        const size_t end = rest.substr(0, 12).find(';');
        if (end == rest.npos) {
            return false;
        }
        const std::string_view what = rest.substr(0, end);
        rest.remove_prefix(end + 1);
        constexpr std::string_view kNamed[][2] = {
            {"amp", "&"}, {"lt", "<"}, {"gt", ">"}, {"quot", "\""}, {"apos", "'"}};
        for (const auto &[called, is] : kNamed) {
            if (what == called) {
                out += is;
                return true;
            }
        }
        const bool hexadecimal = what.starts_with("#x");
        if (!what.starts_with("#")) {
            return false;
        }
        const std::string_view digits = what.substr(hexadecimal ? 2 : 1);
        uint32_t code = 0;
        const char *last = digits.data() + digits.size();
        const auto [read, problem] =
            std::from_chars(digits.data(), last, code, hexadecimal ? 16 : 10);
        const bool good = problem == std::errc() && read == last && code != 0 && code < 0x110000 &&
                          (code < 0xD800 || code > 0xDFFF);
        if (good) {
            append_utf8(out, code);
        }
        return good;
    }
    bool element(Element &into, int depth) {
        if (depth > kDepthMax || !take("<")) {
            return false;
        }
        into.name = name();
        if (into.name.empty() || !skip_attributes()) {
            return false;
        }
        if (take("/>")) {
            return true;
        }
        if (!take(">")) {
            return false;
        }
        while (!take("</")) {
            if (rest.empty()) {
                return false;
            }
            if (rest.front() == '<') {
                if (!element(into.children.emplace_back(), depth + 1)) {
                    return false;
                }
            } else if (take("&")) {
                if (!entity(into.text)) {
                    return false;
                }
            } else {
                into.text += rest.front();
                rest.remove_prefix(1);
            }
        }
        if (!into.children.empty()) {
            into.text.clear();
        }
        const bool same = name() == into.name;
        skip_spaces();
        return same && take(">");
    }
};

} // namespace

std::string_view Element::text_of(std::string_view child) const {
    for (const Element &each : children) {
        if (each.name == child) {
            return each.text;
        }
    }
    return {};
}

bool read_xml(std::string_view text, Element &root) {
    Reader reader{text};
    reader.take("\xEF\xBB\xBF");
    reader.skip_spaces();
    if (reader.take("<?xml")) {
        const size_t end = reader.rest.find("?>");
        if (end == reader.rest.npos) {
            return false;
        }
        reader.rest.remove_prefix(end + 2);
    }
    reader.skip_spaces();
    if (!reader.element(root, 1)) {
        return false;
    }
    reader.skip_spaces();
    return reader.rest.empty();
}

} // namespace stasis_s3
