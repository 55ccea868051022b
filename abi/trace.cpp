// Traces: what the runtime tells, handed to the host; see stasis_trace.h.
#include "abi/trace.h"

#include "runtime/model.h"
#include "runtime/session.h"

namespace stasis::abi {

namespace {

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

HostTrace::~HostTrace() {
    if (kept_ && given_.release != nullptr) {
        owner_.caller->lend([&] { given_.release(given_.user); });
    }
}

TraceListener HostTrace::listener() {
    return {hear, this, (given_.flags & STASIS_TRACE_READS) != 0};
}

void HostTrace::hear(void *user, const TraceEvent &event) noexcept {
    const HostTrace &self = *static_cast<const HostTrace *>(user);
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
    self.owner_.caller->lend([&] { self.given_.callback(self.given_.user, &told); });
}

stasis_trace_options read_trace(const stasis_trace_options *given, const char *name) {
    const stasis_trace_options options = read_struct(given, name);
    require_flags(options.flags, STASIS_TRACE_READS);
    require(reinterpret_cast<const void *>(options.callback), "options.callback");
    return options;
}

void set_trace(stasis_session &session, const stasis_trace_options *given, const char *name,
               PageOrigin origin) {
    if (given == nullptr) {
        session.session->set_trace(nullptr);
        session.trace.reset();
        return;
    }
    const stasis_trace_options options = read_trace(given, name);
    auto host = std::make_unique<HostTrace>(session, options);
    const TraceListener listener = host->listener();
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
        const SessionUse use(*session, caller);
        set_trace(*session, options, "options", stasis::PageOrigin::before);
    });
}
