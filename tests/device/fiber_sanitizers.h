// Annotations of the host grid's fibers for sanitizers. The thread sanitizer treats the fibers of a
// block as threads that only barriers and exchanges order, although they run one at a time: so it
// finds a kernel that lacks a barrier. (The grid itself, which orders them, is not instrumented.)
#pragma once

#include <cstddef>

#include "tests/sanitizers.h"

#ifdef STASIS_ADDRESS_SANITIZER
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef STASIS_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
#endif

namespace fiber_sanitizers {

// State of one fiber, or of the thread that runs the fibers.
struct Known {
    [[maybe_unused]] void *address = nullptr; // what each sanitizer knows it by
    [[maybe_unused]] void *thread = nullptr;
};

// Before another stack is gone to. `ends`: this one is not come back to.
inline void leave(Known &own, Known &to, const void *stack, size_t size_bytes, bool ends) {
#ifdef STASIS_ADDRESS_SANITIZER
    __sanitizer_start_switch_fiber(ends ? nullptr : &own.address, stack, size_bytes);
#endif
#ifdef STASIS_THREAD_SANITIZER
    if (own.thread == nullptr) {
        own.thread = __tsan_get_current_fiber();
    }
    if (to.thread == nullptr) {
        to.thread = __tsan_create_fiber(0);
    }
    __tsan_switch_to_fiber(to.thread, __tsan_switch_to_fiber_no_sync);
#endif
    static_cast<void>(own), static_cast<void>(to), static_cast<void>(stack);
    static_cast<void>(size_bytes), static_cast<void>(ends);
}

// First thing on the new stack; null: the first time. Gives the stack that was left.
inline void arrive(const Known *own, const void **stack, size_t *size_bytes) {
#ifdef STASIS_ADDRESS_SANITIZER
    __sanitizer_finish_switch_fiber(own != nullptr ? own->address : nullptr, stack, size_bytes);
#endif
    static_cast<void>(own), static_cast<void>(stack), static_cast<void>(size_bytes);
}

// Work before `release` happens before work after an `acquire` of the same place.
inline void release(void *place) {
#ifdef STASIS_THREAD_SANITIZER
    __tsan_release(place);
#endif
    static_cast<void>(place);
}
inline void acquire(void *place) {
#ifdef STASIS_THREAD_SANITIZER
    __tsan_acquire(place);
#endif
    static_cast<void>(place);
}

} // namespace fiber_sanitizers
