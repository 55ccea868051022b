// Traces: reports the runtime's events to the host; see stasis_trace.h. Must not know what causes
// events.
#include "abi/trace.h"

#include <cassert>
#include <utility>

#include "runtime/session/model.h"
#include "runtime/session/session.h"

namespace stasis::abi {

namespace {

// Kinds are the public ones, number by number, so that a cast converts them.
constexpr bool same(TraceKind kind, uint32_t number) {
    return static_cast<uint32_t>(kind) == number;
}
static_assert(same(TraceKind::held, STASIS_TRACE_HELD));
static_assert(same(TraceKind::taken, STASIS_TRACE_TAKEN));
static_assert(same(TraceKind::shared, STASIS_TRACE_SHARED));
static_assert(same(TraceKind::copied, STASIS_TRACE_COPIED));
static_assert(same(TraceKind::filled, STASIS_TRACE_FILLED));
static_assert(same(TraceKind::released, STASIS_TRACE_RELEASED));
static_assert(same(TraceKind::read, STASIS_TRACE_READ));
static_assert(same(TraceKind::append, STASIS_TRACE_APPEND));
static_assert(same(TraceKind::undone, STASIS_TRACE_UNDONE));
static_assert(same(TraceKind::rewind, STASIS_TRACE_REWIND));
static_assert(same(TraceKind::evict, STASIS_TRACE_EVICT));
static_assert(same(TraceKind::fork, STASIS_TRACE_FORK));
static_assert(same(TraceKind::save, STASIS_TRACE_SAVE));
static_assert(same(TraceKind::load, STASIS_TRACE_LOAD));
static_assert(TraceEvent::kAllGroups == STASIS_TRACE_ALL_GROUPS);

} // namespace

HostTrace::HostTrace(const stasis_session &owner, const stasis_trace_options &given)
    : owner_(owner), given_(given), queue_(given.queue_events) {}

HostTrace::~HostTrace() {
    if (kept_ && given_.release != nullptr) {
        assert(owner_.caller != nullptr);
        owner_.caller->lend([&] { given_.release(given_.user); });
    }
}

TraceListener HostTrace::listener() {
    return {hear, this, (given_.flags & STASIS_TRACE_READS) != 0};
}

// Called by the runtime, in the middle of a change: it cannot fail.
void HostTrace::hear(void *user, const TraceEvent &event) noexcept {
    HostTrace &self = *static_cast<HostTrace *>(user);
    stasis_trace_event told{};
    told.struct_size = sizeof told;
    told.kind = static_cast<uint32_t>(event.kind);
    told.group = event.group;
    if (event.group != TraceEvent::kAllGroups) {
        told.window = self.owner_.session->model()->groups[event.group].window;
    }
    told.begin = event.begin;
    told.end = event.end;
    told.bytes = event.bytes;
    told.digest = to_abi(event.digest);
    if (self.queues()) {
        self.wait(told);
    } else {
        assert(self.owner_.caller != nullptr);
        self.owner_.caller->lend([&] { self.given_.callback(self.given_.user, &told); });
    }
}

// Queues an event. When the queue is full, this and every later event is lost until it has been
// emptied, so that a host that takes events sees no gap that is not reported.
void HostTrace::wait(const stasis_trace_event &event) noexcept {
    assert(queues());
    if (lost_ != 0 || waiting_ == queue_.size()) {
        ++lost_;
        return;
    }
    queue_[(first_ + waiting_) % queue_.size()] = event;
    ++waiting_;
}

size_t HostTrace::take(unsigned char *events, size_t stride, size_t capacity, uint64_t &lost) {
    assert(queues());
    const size_t count = std::min(capacity, waiting_);
    for (size_t i = 0; i < count; ++i) {
        write_element(queue_[(first_ + i) % queue_.size()], events, stride, i);
    }
    first_ = (first_ + count) % queue_.size();
    waiting_ -= count;
    lost = waiting_ == 0 ? std::exchange(lost_, 0) : 0;
    return count;
}

stasis_trace_options read_trace(const stasis_trace_options *given, const char *name) {
    const stasis_trace_options options = read_struct(given, name);
    require_flags(options.flags, STASIS_TRACE_READS);
    if ((options.callback == nullptr) == (options.queue_events == 0)) {
        fail(Status::invalid_argument, "%s: expected a callback, or room for events to wait: %s",
             name, options.callback == nullptr ? "there is neither" : "there are both");
    }
    if (options.queue_events > STASIS_TRACE_QUEUE_MAX) {
        fail(Status::invalid_argument, "%s.queue_events is %llu: expected at most %u", name,
             Number{options.queue_events}, STASIS_TRACE_QUEUE_MAX);
    }
    return options;
}

void set_trace(stasis_session &session, const stasis_trace_options *given, const char *name,
               PageOrigin origin) {
    assert(session.gate.held());
    if (given == nullptr) {
        session.session->set_trace(nullptr);
        session.trace.reset();
        return;
    }
    const stasis_trace_options options = read_trace(given, name);
    auto host = std::make_unique<HostTrace>(session, options);
    const TraceListener listener = host->listener();
    // The new trace reports the session's pages before the old one ends, so that a failure leaves
    // the old one.
    session.session->set_trace(&listener, origin);
    host->keep();
    session.trace.swap(host);
}

} // namespace stasis::abi

using namespace stasis::abi;

void stasis_trace_options_init(stasis_trace_options *options, size_t size) {
    init_struct(options, size);
}

stasis_status stasis_session_set_trace(stasis_session *session, const stasis_trace_options *options,
                                       stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require(session, "session");
        const SessionUse use(*session, caller, Use::reads);
        set_trace(*session, options, "options", stasis::PageOrigin::before);
    });
}

stasis_status stasis_session_take_trace(stasis_session *session, stasis_trace_event *events,
                                        size_t stride, size_t capacity, size_t *count,
                                        uint64_t *lost, stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require(session, "session");
        require_array(events, capacity, "events");
        require(count, "count");
        require_stride<stasis_trace_event>(stride);
        const SessionUse use(*session, caller, Use::looks);
        if (session->trace == nullptr || !session->trace->queues()) {
            stasis::fail(stasis::Status::not_found, "the session has no trace whose events wait");
        }
        uint64_t behind = 0;
        *count = session->trace->take(reinterpret_cast<unsigned char *>(events), stride, capacity,
                                      behind);
        if (lost != nullptr) {
            *lost = behind;
        }
    });
}
