// What sanitizers are told of the host grid's fibers. The thread sanitizer takes the fibers of a
// block for threads that only barriers and exchanges bring into an order, though they take turns:
// so it finds a kernel that lacks a barrier. (The grid itself, which knows the turns, is not
// instrumented.)
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

// Of one fiber, or of the thread that they are fibers of.
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

// What was done before `release` is in order with what is done after an `acquire` of the same
// place.
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
