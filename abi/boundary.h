// The one way into the library. Every exported call that can fail runs inside `enter`: in the
// contract's floating-point environment (C2), with everything that is thrown turned into a status
// and a message. Knows errors and argument checks, neither models nor files.
#pragma once

#include <atomic>
#include <cfenv>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "abi/stasis.h"
#include "format/state/digest.h"
#include "format/state/error.h"
#include "runtime/kernels/environment.h"

namespace stasis::abi {

// The thread that called, put aside for the length of the call: its floating-point environment
// (x87's too, where it may have unmasked traps) and its readiness to be cancelled by
// pthread_cancel, which would unwind through the library.
class Caller {
  public:
    Caller();
    ~Caller();
    Caller(const Caller &) = delete;
    Caller &operator=(const Caller &) = delete;

    // Runs a callback of the host in the host's own floating-point environment.
    template <typename Callback> auto lend(const Callback &callback) const {
        const Lent lent(environment_);
        return callback();
    }

  private:
    class Lent {
      public:
        explicit Lent(const fenv_t &environment);
        ~Lent();

      private:
        fenv_t contract_;
    };

    fenv_t environment_;
    int cancel_state_;
};

stasis_status report_success(stasis_error *error) noexcept;
// Of the exception being handled. Allocates nothing.
stasis_status report_failure(stasis_error *error) noexcept;

// Runs the body of an exported function; the body may take the caller, to call it back.
template <typename Body> stasis_status enter(stasis_error *error, const Body &body) noexcept {
    const Caller caller;
    const kernels::FloatEnvironment contract;
    try {
        if constexpr (std::is_invocable_v<const Body &, const Caller &>) {
            body(caller);
        } else {
            body();
        }
        return report_success(error);
    } catch (...) {
        return report_failure(error);
    }
}

// Takes an object's busy flag, or throws Error(busy).
void take_busy(std::atomic<bool> &flag, const char *object);

// Holds an object's busy flag for the length of a call, or throws Error(busy).
class Busy {
  public:
    Busy(std::atomic<bool> &flag, const char *object) : flag_(flag) { take_busy(flag, object); }
    ~Busy() { flag_.store(false, std::memory_order_release); }
    Busy(const Busy &) = delete;
    Busy &operator=(const Busy &) = delete;

  private:
    std::atomic<bool> &flag_;
};

// Argument checks; all throw Error naming the argument.
void require(const void *pointer, const char *name);
void require_path(const char *path, const char *name); // neither NULL nor empty
void require_array(const void *pointer, size_t count, const char *name);
void require_flags(uint32_t given, uint32_t known);
void require_zero(uint32_t reserved, const char *name);

// An output array of `needed` elements: sets *count, and throws Error(buffer_too_small) if they do
// not fit into `capacity`.
void require_room(size_t needed, size_t capacity, size_t *count, const char *name);
void write_text(std::string_view from, char *text, size_t capacity, size_t *length);
// Copies into a zero-terminated field, cut between characters where it is too long.
void write_field(std::string_view from, char *field, size_t size) noexcept;
stasis_digest to_abi(const Digest &digest);

} // namespace stasis::abi
