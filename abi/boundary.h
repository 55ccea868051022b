// The entry into the library. Every exported call that can fail runs inside `enter`: in the
// contract's floating-point environment (C2), with every exception converted to a status and a
// message. Knows errors and argument checks; must not know models or files.
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

// State of the calling thread that is saved for the length of a call: its floating-point
// environment (x87's too, which may have unmasked traps) and its cancellability by pthread_cancel,
// which would unwind through the library. Restored when the call ends.
class Caller {
  public:
    Caller();
    ~Caller();
    Caller(const Caller &) = delete;
    Caller &operator=(const Caller &) = delete;

    // Whether the call was made by a callback inside another one, which may hold a lock, or a
    // session: such a call must not wait for others.
    bool nested() const { return nested_; }

    // Runs a callback of the host in the host's own floating-point environment.
    template <typename Callback> auto lend(const Callback &callback) const {
        const Lent lent(environment_, true);
        return callback();
    }
    // The same at a moment at which this call holds nothing: calls of the callback may wait, if
    // this one may.
    template <typename Callback> auto lend_all(const Callback &callback) const {
        const Lent lent(environment_, nested_);
        return callback();
    }

  private:
    class Lent {
      public:
        Lent(const fenv_t &environment, bool nested);
        ~Lent();

      private:
        fenv_t contract_;
    };

    fenv_t environment_;
    int cancel_state_;
    const bool before_; // the thread was inside another call
    const bool nested_;
};

// Both fill `error`, unless it is null, and return its status. Both allocate nothing.
stasis_status report_success(stasis_error *error) noexcept;
// Reports the exception that is being handled; must be called inside a catch block.
stasis_status report_failure(stasis_error *error) noexcept;

// Runs the body of an exported function and reports its outcome. A body that calls the host back
// takes the Caller as its argument.
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

// Sets an object's busy flag. Throws Error(busy) if it is set already.
void take_busy(std::atomic<bool> &flag, const char *object);

// Holds an object's busy flag for the length of a call. Throws Error(busy) if another call holds
// it.
class Busy {
  public:
    Busy(std::atomic<bool> &flag, const char *object) : flag_(flag) { take_busy(flag, object); }
    ~Busy() { flag_.store(false, std::memory_order_release); }
    Busy(const Busy &) = delete;
    Busy &operator=(const Busy &) = delete;

  private:
    std::atomic<bool> &flag_;
};

// Argument checks. Each throws Error and names the argument: invalid_argument for a null or an
// empty path, unsupported for unknown flags and a reserved field that is not 0.
void require(const void *pointer, const char *name);
void require_path(const char *path, const char *name); // neither NULL nor empty
void require_array(const void *pointer, size_t count, const char *name);
void require_flags(uint32_t given, uint32_t known);
void require_zero(uint32_t reserved, const char *name);

// Sets *count to `needed`, the elements of an output array. Throws Error(buffer_too_small) if they
// exceed `capacity`.
void require_room(size_t needed, size_t capacity, size_t *count, const char *name);
// Copies a text into an output buffer, without a zero at its end. Sets and throws as require_room.
void write_text(std::string_view from, char *text, size_t capacity, size_t *length);
// Copies into a field of `size` > 0 bytes and ends it with a zero; a longer text is cut between two
// characters.
void write_field(std::string_view from, char *field, size_t size) noexcept;
stasis_digest to_abi(const Digest &digest);

} // namespace stasis::abi
