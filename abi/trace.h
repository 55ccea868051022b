// A session in use by a call, and the trace that a host has set on it.
#pragma once

#include <vector>

#include "abi/handles.h"
#include "abi/options.h"
#include "runtime/timeline/trace.h"

namespace stasis::abi {

// A call's hold on a session: its busy flag, and the caller, in whose environment its trace is
// heard.
class SessionUse {
  public:
    SessionUse(const stasis_session &session, const Caller &caller)
        : busy_(session.busy, "session"), session_(session) {
        session_.caller = &caller;
    }
    ~SessionUse() { session_.caller = nullptr; }
    SessionUse(const SessionUse &) = delete;
    SessionUse &operator=(const SessionUse &) = delete;

  private:
    const Busy busy_;
    const stasis_session &session_;
};

// The host's callback, as long as it is told, or the events that wait for it; then releases what
// belongs to it.
class HostTrace {
  public:
    HostTrace(const stasis_session &owner, const stasis_trace_options &given);
    ~HostTrace();
    HostTrace(const HostTrace &) = delete;
    HostTrace &operator=(const HostTrace &) = delete;

    TraceListener listener();
    void keep() { kept_ = true; } // from here on `release` is due
    bool queues() const { return given_.callback == nullptr; }
    // See stasis_session_take_trace. Returns how many it took.
    size_t take(unsigned char *events, size_t stride, size_t capacity, uint64_t &lost);

  private:
    static void hear(void *user, const TraceEvent &event) noexcept;
    void wait(const stasis_trace_event &event) noexcept;

    const stasis_session &owner_;
    const stasis_trace_options given_;
    bool kept_ = false;
    std::vector<stasis_trace_event> queue_; // a ring
    size_t first_ = 0, waiting_ = 0;
    uint64_t lost_ = 0;
};

// Checked.
stasis_trace_options read_trace(const stasis_trace_options *given, const char *name);

// Of a session that the call holds; `given` null: none. Tells what the session holds as pages that
// come from `origin`.
void set_trace(stasis_session &session, const stasis_trace_options *given, const char *name,
               PageOrigin origin);

} // namespace stasis::abi
