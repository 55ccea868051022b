// The one error type that crosses folders inside the library. Thrown by format and runtime,
// converted to a stasis_status and a message at the ABI boundary (abi/boundary.h). Must not know
// the ABI.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <exception>
#include <string>

namespace stasis {

// Numbers are those of abi/stasis.h (abi/boundary.h asserts it) and never change.
enum class Status : int32_t {
    ok = 0,
    invalid_argument = 1,
    not_found = 2,
    io = 3,
    no_memory = 4,
    unsupported = 5,
    corrupt = 6,
    version = 7,
    model_mismatch = 8,
    full = 9,
    busy = 10,
    cancelled = 11,
    diverged = 12,
    device = 13,
    stopped = 14,
    internal = 15,
    nonfinite = 16,
    pool_exhausted = 17,
    buffer_too_small = 18,
    conflict = 19,
    no_token = 20,
    timeout = 21,
};

class Error : public std::exception {
  public:
    Error(Status status, std::string message) : status_(status), message_(std::move(message)) {}
    Status status() const { return status_; }
    const char *what() const noexcept override { return message_.c_str(); }

  private:
    Status status_;
    std::string message_;
};

// The type of %llu, whatever uint64_t is on the machine.
using Number = unsigned long long;

// Throws Error with a printf-formatted message: what was expected, what was found, and where.
[[noreturn]] void fail(Status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

} // namespace stasis
