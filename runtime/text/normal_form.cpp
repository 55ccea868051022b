// Converts text to NFC; see normal_form.h. No character below U+0300 composes with one before it
// (UAX #15: their NFC_Quick_Check is Yes and their combining class 0). So a text may be cut before
// each of them and composed stretch by stretch.
#include "runtime/text/normal_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <new>
#include <vector>

#include "format/state/error.h"

namespace stasis {

namespace {

// Reports whether a byte begins a character from U+0300 on, or is inside a character.
bool starts_at_0300(char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0xCC || (byte & 0xC0) == 0x80;
}

using CodePoints = std::vector<utf8proc_int32_t>;

utf8proc_ssize_t checked(utf8proc_ssize_t result) {
    if (result == UTF8PROC_ERROR_NOMEM) {
        throw std::bad_alloc();
    }
    if (result < 0) {
        fail(Status::internal, "utf8proc: %s", utf8proc_errmsg(result));
    }
    return result;
}

constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

// Returns the canonical decomposition of each character, in sequence.
CodePoints decomposed(std::string_view text) {
    constexpr utf8proc_ssize_t kLongest = 4; // the longest of one character (UAX #15)
    const auto *at = reinterpret_cast<const utf8proc_uint8_t *>(text.data());
    const utf8proc_uint8_t *const end = at + text.size();
    CodePoints out;
    while (at < end) {
        utf8proc_int32_t point = 0;
        at += checked(utf8proc_iterate(at, end - at, &point));
        utf8proc_int32_t parts[kLongest];
        int boundary = 0;
        const utf8proc_ssize_t count =
            checked(utf8proc_decompose_char(point, parts, kLongest, kOptions, &boundary));
        if (count > kLongest) {
            fail(Status::internal, "U+%04X decomposes to %td characters",
                 static_cast<unsigned>(point), count);
        }
        out.insert(out.end(), parts, parts + count);
    }
    return out;
}

// Sorts the marks after each character by their combining classes. (utf8proc_decompose sorts them
// by insertion: n * n steps for n marks.)
void order_marks(CodePoints &points) {
    const auto class_of = [](utf8proc_int32_t point) {
        return utf8proc_get_property(point)->combining_class;
    };
    const auto is_mark = [&](utf8proc_int32_t point) { return class_of(point) != 0; };
    for (auto at = points.begin(); at != points.end();) {
        const auto begin = std::find_if(at, points.end(), is_mark);
        at = std::find_if_not(begin, points.end(), is_mark);
        std::stable_sort(begin, at, [&](utf8proc_int32_t a, utf8proc_int32_t b) {
            return class_of(a) < class_of(b);
        });
    }
}

std::string composed(std::string_view text) {
    CodePoints points = decomposed(text);
    order_marks(points);
    points.resize(static_cast<size_t>(checked(utf8proc_normalize_utf32(
        points.data(), static_cast<utf8proc_ssize_t>(points.size()), kOptions))));
    std::string out;
    for (const utf8proc_int32_t point : points) {
        utf8proc_uint8_t bytes[4];
        const utf8proc_ssize_t size = utf8proc_encode_char(point, bytes);
        out.append(reinterpret_cast<const char *>(bytes), static_cast<size_t>(size));
    }
    return out;
}

} // namespace

bool may_compose(std::string_view text) {
    return std::any_of(text.begin(), text.end(),
                       [](char c) { return static_cast<unsigned char>(c) >= 0xCC; });
}

ComposedText compose(std::string_view text) {
    ComposedText out;
    for (size_t at = 0; at < text.size();) {
        // A stretch is either plain, all below U+0300 and not followed by a character from
        // U+0300 on, or one character (or none) with all characters from U+0300 on that follow it.
        size_t end = at;
        while (end < text.size() && static_cast<unsigned char>(text[end]) < 0x80 &&
               (end + 1 == text.size() || !starts_at_0300(text[end + 1]))) {
            ++end;
        }
        const bool plain = end > at;
        if (!plain) {
            end = at + 1;
            while (end < text.size() && starts_at_0300(text[end])) {
                ++end;
            }
        }
        const std::string_view stretch = text.substr(at, end - at);
        const std::string form = plain ? std::string(stretch) : composed(stretch);
        out.stretches.push_back({out.text.size(), at, form != stretch});
        out.text += form;
        at = end;
    }
    out.stretches.push_back({out.text.size(), text.size(), false});
    return out;
}

std::pair<size_t, size_t> ComposedText::origin(size_t begin, size_t end) const {
    const auto after = [&](size_t place) { // the stretch after the one with `place`
        return std::upper_bound(stretches.begin(), stretches.end(), place,
                                [](size_t at, const Stretch &s) { return at < s.begin; });
    };
    const auto first = after(begin) - 1;
    const auto last = after(end - 1) - 1;
    return {first->changed ? first->original : first->original + (begin - first->begin),
            last->changed ? (last + 1)->original : last->original + (end - last->begin)};
}

} // namespace stasis
