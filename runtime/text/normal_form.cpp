// See normal_form.h. No character below U+0300 composes with one before it (UAX #15: their
// NFC_Quick_Check is Yes and their combining class 0), so a text may be cut before each of them and
// composed stretch by stretch.
#include "runtime/text/normal_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

#include "format/error.h"

namespace stasis {

namespace {

bool starts_at_0300(char c) { // or is a byte inside a character
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0xCC || (byte & 0xC0) == 0x80;
}

std::string composed(std::string_view text) {
    utf8proc_uint8_t *out = nullptr;
    const utf8proc_ssize_t size =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t *>(text.data()),
                     static_cast<utf8proc_ssize_t>(text.size()), &out,
                     static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(out, std::free);
    if (size == UTF8PROC_ERROR_NOMEM) {
        throw std::bad_alloc();
    }
    if (size < 0) {
        fail(Status::internal, "utf8proc: %s", utf8proc_errmsg(size));
    }
    return {reinterpret_cast<const char *>(out), static_cast<size_t>(size)};
}

} // namespace

bool may_compose(std::string_view text) {
    return std::any_of(text.begin(), text.end(),
                       [](char c) { return static_cast<unsigned char>(c) >= 0xCC; });
}

ComposedText compose(std::string_view text) {
    ComposedText out;
    for (size_t at = 0; at < text.size();) {
        // A stretch: what is below U+0300 and not followed by what is not, or one character (or
        // none) and all behind it that is not.
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
    const auto after = [&](size_t place) { // the stretch behind the one that `place` is in
        return std::upper_bound(stretches.begin(), stretches.end(), place,
                                [](size_t at, const Stretch &s) { return at < s.begin; });
    };
    const auto first = after(begin) - 1;
    const auto last = after(end - 1) - 1;
    return {first->changed ? first->original : first->original + (begin - first->begin),
            last->changed ? (last + 1)->original : last->original + (end - last->begin)};
}

} // namespace stasis
