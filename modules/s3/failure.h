// How a function of this module fails: a status of the table, and why.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <exception>
#include <string>

#include "abi/stasis.h"
#include "modules/stasis_module.h"

namespace stasis_s3 {

class Failure : public std::exception {
  public:
    Failure(stasis_status status, std::string message)
        : status_(status), message_(std::move(message)) {}
    stasis_status status() const { return status_; }
    const char *what() const noexcept override { return message_.c_str(); }

  private:
    stasis_status status_;
    std::string message_;
};

[[noreturn]] __attribute__((format(printf, 2, 3))) inline void fail(stasis_status status,
                                                                    const char *format, ...) {
    char text[480];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    throw Failure(status, text);
}

// What the library lends the module; see stasis_store_module_request.
struct Host {
    stasis_status (*look)(void) = nullptr;
    void (*explain)(const char *message) = nullptr;

    // Throws if the call should end.
    void look_around() const {
        const stasis_status status = look();
        if (status != STASIS_OK) {
            fail(status, "the call was ended by its caller");
        }
    }
};

} // namespace stasis_s3
