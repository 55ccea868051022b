// Digits of escapes, which three of the notations have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "format/state/error.h"

namespace stasis::constraint {

// Returns the value of a hexadecimal digit; 16 for another byte.
inline uint32_t hex_digit(char byte) {
    return byte >= '0' && byte <= '9'   ? static_cast<uint32_t>(byte - '0')
           : byte >= 'a' && byte <= 'f' ? static_cast<uint32_t>(byte - 'a' + 10)
           : byte >= 'A' && byte <= 'F' ? static_cast<uint32_t>(byte - 'A' + 10)
                                        : 16;
}

// Reads `digits` hexadecimal digits at `at`, which it moves behind them. Throws
// Error(invalid_argument) naming the offset of what is none; `where` is the text, for the message.
inline uint32_t read_hex(std::string_view text, size_t &at, size_t digits, const char *where) {
    uint32_t value = 0;
    for (size_t i = 0; i < digits; ++i, ++at) {
        const uint32_t digit = at < text.size() ? hex_digit(text[at]) : 16;
        if (digit == 16) {
            fail(Status::invalid_argument, "%s has an escape without its %zu digits at byte %zu",
                 where, digits, at);
        }
        value = value * 16 + digit;
    }
    return value;
}

} // namespace stasis::constraint
