// Limits of a parser under a fuzzer, for any input: the memory that it may hold at a time, whoever
// allocates it (the library, zstd, sentencepiece), and errors with a reason. Only for programs
// under the address sanitizer; the thread that made a Meter is watched.
#pragma once

#include <sanitizer/allocator_interface.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "format/state/error.h"

namespace stasis::fuzz {

// Ends the program as a finding of the fuzzer, which then keeps the input.
[[noreturn]] inline void report(const char *what) {
    std::fprintf(stderr, "finding: %s\n", what);
    std::abort();
}

inline void expect(bool holds, const char *what) {
    if (!holds) {
        report(what);
    }
}

// While it lives, more memory than `bytes` held at a time is a finding.
class Meter {
  public:
    explicit Meter(size_t bytes) {
        static const int installed = __sanitizer_install_malloc_and_free_hooks(allocated, freed);
        expect(installed != 0, "the sanitizer takes no hooks");
        held_ = peak_ = 0;
        limit_ = static_cast<int64_t>(bytes);
    }
    ~Meter() { limit_ = INT64_MAX; }
    Meter(const Meter &) = delete;
    Meter &operator=(const Meter &) = delete;

    static int64_t peak() { return peak_; } // since the last Meter was made

  private:
    static void allocated(const volatile void *, size_t bytes) {
        held_ += static_cast<int64_t>(bytes);
        peak_ = held_ > peak_ ? held_ : peak_;
        if (held_ > limit_) {
            limit_ = INT64_MAX; // reporting takes memory too
            report("more memory held than the input's size allows");
        }
    }
    static void freed(const volatile void *memory) {
        if (memory != nullptr) {
            held_ -= static_cast<int64_t>(
                __sanitizer_get_allocated_size(const_cast<const void *>(memory)));
        }
    }

    static inline thread_local int64_t held_ = 0;
    static inline thread_local int64_t peak_ = 0;
    static inline thread_local int64_t limit_ = INT64_MAX;
};

// Upper bound of the memory of parsed JSON: "{}," is an element of three bytes in the text, of 16
// in an array, which holds three times as many while it grows, and of 48 for the empty object.
inline constexpr size_t kJsonTimes = 40;

// A refusal says what is wrong, and is one of a file.
inline void check_refusal(const Error &error) {
    expect(error.what()[0] != '\0', "an error without a message");
    expect(error.status() == Status::corrupt || error.status() == Status::version ||
               error.status() == Status::unsupported,
           error.what());
}

} // namespace stasis::fuzz
