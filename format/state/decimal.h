// A number as messages show it.
#pragma once

#include <charconv>
#include <string>

namespace stasis {

// As printf's %g writes it, whatever the host's locale.
inline std::string decimal(double value) {
    char text[32];
    const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::general, 6);
    return {text, end.ptr};
}

} // namespace stasis
