// The use of a session by a call, and the trace that a host has set on it. Must not know when the
// runtime reports events.
#pragma once

#include <cassert>
#include <vector>

#include "abi/handles.h"
#include "abi/options.h"
#include "runtime/timeline/trace.h"

namespace stasis::abi {

// What a call does with a session: looks at its state, forks it, reads it and may take its time,
// changes it, begins a generation, or computes the next token of one.
enum class Use { looks, forks, reads, changes, begins, generates };

// Holds a session for a call, and sets its caller, in whose floating-point environment trace
// callbacks run. While a generation of the session is open, calls that fork or read drop what is
// computed ahead, and those that look if they must. Unless it is told not to, waits as the gate
// does. Throws Error(busy). Strong guarantee.
void hold_session(const stasis_session &session, const Caller &caller, Use use, bool waits);
void release_session(const stasis_session &session, Use use) noexcept;

// Holds a session for the length of a call. One that a callback made does not wait.
class SessionUse {
  public:
    SessionUse(const stasis_session &session, const Caller &caller, Use use)
        : SessionUse(session, caller, use, !caller.nested()) {}
    SessionUse(const stasis_session &session, const Caller &caller, Use use, bool waits)
        : session_(session), use_(use) {
        hold_session(session, caller, use, waits);
    }
    ~SessionUse() { release_session(session_, use_); }
    SessionUse(const SessionUse &) = delete;
    SessionUse &operator=(const SessionUse &) = delete;

  private:
    const stasis_session &session_;
    const Use use_;
};

// The trace of a session: passes events to the host's callback or, without one, queues them. The
// destructor calls the host's `release` after keep().
class HostTrace {
  public:
    HostTrace(const stasis_session &owner, const stasis_trace_options &given);
    ~HostTrace();
    HostTrace(const HostTrace &) = delete;
    HostTrace &operator=(const HostTrace &) = delete;

    TraceListener listener();
    void keep() { kept_ = true; } // the destructor calls `release`
    bool queues() const { return given_.callback == nullptr; }
    // Removes up to `capacity` queued events, see stasis_session_take_trace. Returns their number.
    size_t take(unsigned char *events, size_t stride, size_t capacity, uint64_t &lost);

  private:
    static void hear(void *user, const TraceEvent &event) noexcept;
    void wait(const stasis_trace_event &event) noexcept;

    const stasis_session &owner_;
    const stasis_trace_options given_;
    bool kept_ = false;
    std::vector<stasis_trace_event> queue_; // a ring buffer
    // Index of the oldest event in the ring, and the number of events in it.
    size_t first_ = 0, waiting_ = 0;
    uint64_t lost_ = 0;
};

// Returns the caller's options. Throws Error if there are both a callback and a queue, or neither.
stasis_trace_options read_trace(const stasis_trace_options *given, const char *name);

// Starts a trace of a session that the call holds, or ends it if `given` is null. Reports the pages
// that the session has, as coming from `origin`.
void set_trace(stasis_session &session, const stasis_trace_options *given, const char *name,
               PageOrigin origin);

} // namespace stasis::abi
