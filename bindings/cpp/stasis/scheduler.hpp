// Stasis for C++20: generation for many sessions at once. Included by stasis.hpp.
#pragma once

#include <chrono>

#include "stasis/session.hpp"

namespace stasis {

using SchedulerStats = stasis_scheduler_stats;

// stasis_scheduler_options; 0 is the default. None of them influences results.
struct SchedulerOptions {
    std::uint32_t sessions_max = 0; // that draw a token in a pass
    std::uint32_t stall_ms = 0;     // what prompts may add to a pass
    std::uint32_t slice = 0;        // positions of prompts in a pass
    std::uint64_t events_max = 0;   // events of a session that wait
};

// What a session appends before it generates: tokens, a turn, a conversation, or nothing.
struct Prompt {
    std::vector<Token> tokens = {};
    std::string role = {}; // empty: no turn
    std::string text = {};
    std::string conversation = {}; // in JSON (stasis_chat.h), with the reply's prompt; empty: none

    static Prompt message(std::string text, std::string role = "user") {
        return {.role = std::move(role), .text = std::move(text)};
    }
};

// How a session's work ended.
struct SchedulerEnd {
    Stop stop = Stop::Callback;      // Callback where an error ended it
    std::uint64_t begin = 0;         // position of the first new token
    std::uint64_t count = 0;         // new tokens
    std::optional<Error> error = {}; // Cancelled too
};

// A token of a session or, with `end`, its last event, whose text was held back.
struct SchedulerEvent {
    Generated generated = {};
    const stasis_session *session = nullptr;
    void *user = nullptr; // as it was submitted
    std::uint64_t pass = 0;
    std::optional<SchedulerEnd> end = {};

    bool of(const Session &which) const noexcept { return session == which.raw(); }
};

class Scheduler;

// Events as they come, of one session up to its end, or of all until none is left: a range. Asking
// for one computes.
class [[nodiscard]] Events : public detail::Pulled<Events, SchedulerEvent> {
  public:
    std::optional<SchedulerEvent> next();

  private:
    friend class Scheduler;
    Events(Scheduler &scheduler, const Session *session)
        : scheduler_(&scheduler), session_(session) {}
    Scheduler *scheduler_;
    const Session *session_; // null: of all
    bool over_ = false;
};

// Computes a token of each of many sessions in one pass, and their prompts beside them. All
// functions may be called by any number of threads. A session that was submitted may be moved and
// destroyed; until its end was fetched, calls that would change it throw Error(Busy).
class Scheduler {
  public:
    explicit Scheduler(const Model &model, const SchedulerOptions &options = {}) {
        auto given = detail::sized<stasis_scheduler_options>();
        given.sessions_max = options.sessions_max;
        given.stall_ms = options.stall_ms;
        given.slice = options.slice;
        given.events_max = options.events_max;
        stasis_scheduler *raw = nullptr;
        detail::call([&](stasis_error *error) {
            return stasis_scheduler_create(model.raw(), &given, &raw, error);
        });
        handle_.reset(raw);
    }

    // Submits a session: it appends the prompt and generates. Computes nothing yet. `user` comes
    // with each event. Throws Error(Conflict) if the log differs from the prompt's conversation or
    // has more: rewind to the position of Session::chat_tokens, and submit again.
    void submit(Session &session, const Prompt &prompt = {}, const GenerateOptions &options = {},
                void *user = nullptr);
    // Waits for an event of any session, computing meanwhile; none: the time is over. Without a
    // timeout it waits for as long as it takes.
    std::optional<SchedulerEvent>
    next(std::optional<std::chrono::milliseconds> timeout = std::nullopt) {
        return next_of(nullptr, timeout);
    }
    // The same for one session. Throws Error(NotFound) if it is not in the scheduler (any more).
    std::optional<SchedulerEvent>
    next(const Session &session, std::optional<std::chrono::milliseconds> timeout = std::nullopt) {
        return next_of(required(session), timeout);
    }
    Events events() { return {*this, nullptr}; }
    // The session must stay where it is while the range is in use.
    Events events(const Session &session) { return {*this, &session}; }
    // Ends a session, whose last event says Error(Cancelled).
    void cancel(const Session &session) {
        detail::call([&](stasis_error *error) {
            return stasis_scheduler_cancel(raw(), session.raw(), error);
        });
    }
    SchedulerStats stats() const {
        auto stats = detail::sized<SchedulerStats>();
        detail::call(
            [&](stasis_error *error) { return stasis_scheduler_get_stats(raw(), &stats, error); });
        return stats;
    }
    // Ends all work for good: threads in next, and later calls, throw Error(Cancelled). To be
    // called, and such threads to be waited for, before the scheduler is destroyed.
    void stop() noexcept { stasis_scheduler_stop(raw()); }

    // For calls of the C interface; null after a move.
    stasis_scheduler *raw() const noexcept { return handle_.get(); }

  private:
    struct FreeEvent {
        void operator()(stasis_scheduler_event *event) const noexcept {
            stasis_scheduler_event_free(event);
        }
    };

    // A session that was moved from would stand for any.
    static const stasis_session *required(const Session &session) {
        if (session.raw() == nullptr) {
            throw Error(Status::InvalidArgument, "session: it was moved from");
        }
        return session.raw();
    }
    std::optional<SchedulerEvent> next_of(const stasis_session *session,
                                          std::optional<std::chrono::milliseconds> timeout);

    detail::Handle<stasis_scheduler, stasis_scheduler_close> handle_;
};

inline void Scheduler::submit(Session &session, const Prompt &prompt,
                              const GenerateOptions &options, void *user) {
    detail::RawGenerate given(options);
    given.raw.callback_user = user;
    auto first = detail::sized<stasis_prompt>();
    first.tokens = prompt.tokens.data();
    first.token_count = prompt.tokens.size();
    if (!prompt.role.empty()) {
        first.role = detail::c_text(prompt.role, "the role");
        first.text = prompt.text.data();
        first.length = prompt.text.size();
    }
    if (!prompt.conversation.empty()) {
        first.conversation = prompt.conversation.data();
        first.conversation_length = prompt.conversation.size();
    }
    detail::call([&](stasis_error *error) {
        return stasis_scheduler_submit(raw(), session.raw(), &given.raw, &first, error);
    });
}

inline std::optional<SchedulerEvent>
Scheduler::next_of(const stasis_session *session,
                   std::optional<std::chrono::milliseconds> timeout) {
    std::uint64_t limit = STASIS_FOREVER;
    if (timeout) {
        limit = timeout->count() < 0 ? 0 : static_cast<std::uint64_t>(timeout->count());
    }
    stasis_scheduler_event *found = nullptr;
    detail::call([&](stasis_error *error) {
        return stasis_scheduler_next(raw(), session, limit, &found, error);
    });
    const std::unique_ptr<stasis_scheduler_event, FreeEvent> event(found);
    if (event == nullptr) {
        return std::nullopt;
    }
    SchedulerEvent made{.generated = detail::generated_of(*event),
                        .session = event->session,
                        .user = event->user,
                        .pass = event->pass};
    if (event->end != 0) {
        made.generated.last = true;
        made.end = SchedulerEnd{.stop = static_cast<Stop>(event->stop_reason),
                                .begin = event->begin,
                                .count = event->count};
        if (event->status != STASIS_OK) {
            made.end->error.emplace(static_cast<Status>(event->status), event->message);
        }
    }
    return made;
}

inline std::optional<SchedulerEvent> Events::next() {
    if (session_ != nullptr) {
        if (over_) {
            return std::nullopt;
        }
        std::optional<SchedulerEvent> event = scheduler_->next(*session_);
        over_ = event && event->end;
        return event;
    }
    // Other threads may fetch the last event meanwhile, so none is waited for without end.
    while (scheduler_->stats().sessions != 0) {
        if (std::optional<SchedulerEvent> event = scheduler_->next(std::chrono::milliseconds(50))) {
            return event;
        }
    }
    return scheduler_->next(std::chrono::milliseconds(0)); // nothing, or that it was stopped
}

} // namespace stasis
