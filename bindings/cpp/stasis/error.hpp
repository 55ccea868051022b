// Stasis for C++20: statuses, the exception that carries them, digests, and how every call of the C
// interface is made. Included by stasis.hpp.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stasis.h"

namespace stasis {

using Token = stasis_token;

// Why a call failed, as stasis.h explains it.
enum class Status : stasis_status {
    Ok = STASIS_OK,
    InvalidArgument = STASIS_INVALID_ARGUMENT,
    NotFound = STASIS_NOT_FOUND,
    Io = STASIS_IO,
    NoMemory = STASIS_NO_MEMORY,
    Unsupported = STASIS_UNSUPPORTED,
    Corrupt = STASIS_CORRUPT,
    Version = STASIS_VERSION,
    ModelMismatch = STASIS_MODEL_MISMATCH,
    Full = STASIS_FULL,
    Busy = STASIS_BUSY,
    Cancelled = STASIS_CANCELLED,
    Diverged = STASIS_DIVERGED,
    Device = STASIS_DEVICE,
    Stopped = STASIS_STOPPED,
    Internal = STASIS_INTERNAL,
    Nonfinite = STASIS_NONFINITE,
    PoolExhausted = STASIS_POOL_EXHAUSTED,
    BufferTooSmall = STASIS_BUFFER_TOO_SMALL,
    Conflict = STASIS_CONFLICT,
    NoToken = STASIS_NO_TOKEN,
    Timeout = STASIS_TIMEOUT,
};

// Returns "FULL", "BUSY", ..., or "UNKNOWN".
inline const char *name_of(Status status) noexcept {
    return stasis_status_name(static_cast<stasis_status>(status));
}

// Why a call failed: what() is the library's message, which says what was expected, what was found
// and where.
class Error : public std::runtime_error {
  public:
    Error(Status status, const std::string &message)
        : std::runtime_error(message), status_(status) {}
    Status status() const noexcept { return status_; }

  private:
    Status status_;
};

// SHA-256. Those that the C structs hold convert to it.
struct Digest {
    std::array<std::uint8_t, 32> bytes{};

    Digest() = default;
    Digest(const stasis_digest &raw) { std::memcpy(bytes.data(), raw.bytes, bytes.size()); }
    auto operator<=>(const Digest &) const = default;

    // Returns 64 hexadecimal digits.
    std::string hex() const {
        constexpr std::string_view digits = "0123456789abcdef";
        std::string text;
        for (const std::uint8_t byte : bytes) {
            text += digits[byte >> 4];
            text += digits[byte & 15];
        }
        return text;
    }
};

// Returns the library's version, 0xMMmmpp.
inline std::uint32_t version() noexcept {
    return stasis_version();
}
// Returns how the library was built: "0.2.0 (gcc 12.2.0, optimised, avx512, cuda)".
inline std::string_view build() noexcept {
    return stasis_build();
}

namespace detail {

template <auto Release> struct Releaser {
    template <typename Raw> void operator()(Raw *raw) const noexcept { Release(raw); }
};
// Owns an object of the library. Null after it was moved from: the library refuses that by name.
template <typename Raw, auto Release> using Handle = std::unique_ptr<Raw, Releaser<Release>>;

// A C struct with its size stated and the rest 0, which means the defaults.
template <typename Struct> Struct sized() noexcept {
    Struct made{};
    made.struct_size = static_cast<std::uint32_t>(sizeof made);
    return made;
}

// One call of the library: where it reports its error, and where its callbacks leave what they
// throw, for no exception may pass through C.
class Call {
  public:
    stasis_error *error() noexcept { return &error_; }

    // Runs what a callback is for. Returns non-zero, which ends the library's call, if it throws.
    template <typename Body> std::int32_t run(const Body &body) noexcept {
        try {
            body();
            return 0;
        } catch (...) {
            thrown_ = std::current_exception();
            return 1;
        }
    }

    // Throws what a callback has thrown, else Error if the call failed.
    void check(stasis_status status) {
        if (thrown_) {
            std::rethrow_exception(std::exchange(thrown_, nullptr));
        }
        if (status != STASIS_OK) {
            throw Error(static_cast<Status>(status), error_.message);
        }
    }

  private:
    stasis_error error_{STASIS_OK, ""};
    std::exception_ptr thrown_;
};

// Makes a call without callbacks: it is given the place of its error. Throws Error if it fails.
template <typename Function> void call(const Function &function) {
    Call made;
    made.check(function(made.error()));
}

// Returns what a call wrote into a buffer, which has room for `guess` elements or as many as the
// call then asks for. The call is given data, capacity, the place of the count and of its error.
template <typename Buffer, typename Function>
Buffer filled(std::size_t guess, const Function &function) {
    Buffer buffer(guess, typename Buffer::value_type{});
    for (;;) {
        Call made;
        std::size_t count = 0;
        const stasis_status status = function(buffer.data(), buffer.size(), &count, made.error());
        if (status != STASIS_BUFFER_TOO_SMALL) {
            made.check(status);
            buffer.resize(count);
            return buffer;
        }
        buffer.resize(count);
    }
}

} // namespace detail
} // namespace stasis
