// Stores an error as text. Calls nothing of CUDA's.
#pragma once

#include <cstdarg>
#include <cstdio>

#include "runtime/kernels/device.h"

namespace stasis::kernels::device {

[[gnu::format(printf, 3, 4)]] inline void tell(DeviceError *error, DeviceError::Kind kind,
                                               const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    error->kind = kind;
    std::vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
}

} // namespace stasis::kernels::device
