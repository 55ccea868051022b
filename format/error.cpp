// Formatting of error messages; see error.h.
#include "format/error.h"

#include <cstdio>

namespace stasis {

void fail(Status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    char text[1024];
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    throw Error(status, text);
}

} // namespace stasis
