// The text of a number in messages. Must not know what the number means.
#pragma once

#include <charconv>
#include <string>

namespace stasis {

// Returns the text that printf's %g writes in the C locale, whatever the host's locale.
inline std::string decimal(double value) {
    char text[32];
    const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::general, 6);
    return {text, end.ptr};
}

} // namespace stasis
