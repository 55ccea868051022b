// Formatting of error messages; see error.h.
#include "format/state/error.h"

#include <cstdio>
#include <utility>

namespace stasis {

void fail(Status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    va_list counted;
    va_copy(counted, arguments);
    const int size = vsnprintf(nullptr, 0, format, counted);
    va_end(counted);
    std::string text(static_cast<size_t>(size), '\0'); // of any length: messages contain paths
    vsnprintf(text.data(), text.size() + 1, format, arguments);
    va_end(arguments);
    throw Error(status, std::move(text));
}

} // namespace stasis
