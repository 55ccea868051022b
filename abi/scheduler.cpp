// Schedulers: who computes, whose turn it is, and what waits; see scheduler.h.
#include "abi/scheduler.h"

#include <algorithm>

#include "abi/message.h"
#include "abi/trace.h"
#include "runtime/session/generate.h"

namespace stasis::abi {

namespace {

Scheduled &of(const Seat *seat) {
    return *static_cast<Scheduled *>(seat->user);
}

} // namespace

Scheduled::Scheduled(stasis_session &of, GenerateOptions given, Prompt prompt,
                     stasis_cancel *cancel_, void *user_, Deadline deadline_)
    : session(&of), options(std::move(given)), user(user_), cancel(cancel_), deadline(deadline_),
      text(of.session->model(), options, most_tokens(*of.session, options, prompt.entries.size())),
      seat{of.session.get(), std::move(prompt), hear, this},
      begin(of.session->position() + seat.prompt.entries.size()),
      last(std::make_unique<SchedulerEvent>()), place(1, this), node(place.begin()) {}

// One after the other, for a chain of them would be freed by as deep a recursion.
Scheduled::~Scheduled() {
    while (first != nullptr) {
        first = std::move(first->following);
    }
}

// Makes what the token's event and a last event need, so that neither can fail once it is in the
// log.
void Scheduled::hear(void *user, uint32_t token, std::span<const float> row) {
    Scheduled &own = *static_cast<Scheduled *>(user);
    own.text.stage(token);
    auto event = std::make_unique<SchedulerEvent>();
    event->words.reserve(own.text.room());
    own.last->words.reserve(own.text.room());
    if (own.options.log_probabilities > 0) {
        log_probabilities(row, own.options.log_probabilities, token, event->likely);
    }
    own.staged = std::move(event);
}

Scheduler::Scheduler(std::shared_ptr<Model> model, const SchedulerLimits &limits)
    : model_(std::move(model)), limits_(limits), slice_(limits.stall_seconds, limits.slice) {}

Scheduled *Scheduler::find(const stasis_session *session) const {
    const auto at = std::find_if(members_.begin(), members_.end(),
                                 [&](const auto &one) { return one->session == session; });
    return at == members_.end() ? nullptr : at->get();
}

void Scheduler::submit(stasis_session &session, std::unique_ptr<Scheduled> one) {
    if (session.session->model() != model_) {
        fail(Status::invalid_argument, "the session is of another model than the scheduler");
    }
    const Lock lock(mutex_);
    if (stopped_) {
        fail(Status::cancelled, "the scheduler was stopped");
    }
    members_.push_back(std::move(one));
    session.scheduler = weak_from_this();
    session.gate.set_owner(Gate::Owner::scheduler);
    if (members_.back()->text.stop() && !members_.back()->seat.prompts()) {
        end(*members_.back(), Status::ok, *members_.back()->text.stop(), "");
    }
    changed_.notify_all();
}

// ---- Events -----------------------------------------------------------------------------------

void Scheduler::add_event(Scheduled &one, std::unique_ptr<SchedulerEvent> event) noexcept {
    event->struct_size = sizeof(stasis_scheduler_event);
    event->session = one.session;
    event->user = one.user;
    event->pass = stats_.passes;
    event->token = one.token;
    event->position = one.position;
    event->text = event->words.data();
    event->length = event->words.size();
    event->message = event->reason;
    SchedulerEvent *const added = event.get();
    (one.waiting == 0 ? one.first : one.newest->following) = std::move(event);
    one.newest = added;
    if (one.waiting++ == 0) {
        speaking_.splice(speaking_.end(), one.place, one.node);
    }
    ++stats_.events;
}

// Adds the event of the token that was appended.
void Scheduler::add_token(Scheduled &one) noexcept {
    one.text.take();
    one.token = one.seat.token;
    one.position = one.begin + one.count++;
    ++stats_.tokens;
    std::unique_ptr<SchedulerEvent> event = std::move(one.staged);
    event->words = one.text.piece(); // has room
    event->log_probability = event->likely.token;
    event->log_probability_count = static_cast<uint32_t>(event->likely.best.size());
    event->best_tokens = event->likely.best_tokens.data();
    event->best_log_probabilities = event->likely.best.data();
    add_event(one, std::move(event));
}

void Scheduler::end(Scheduled &one, Status status, StopReason reason,
                    const char *message) noexcept {
    one.text.finish();
    std::unique_ptr<SchedulerEvent> event = std::move(one.last);
    event->words = one.text.piece(); // has room
    event->end = 1;
    event->stop_reason = static_cast<uint32_t>(reason);
    event->begin = one.begin - one.seat.prompt.entries.size(); // which was undone, if it is left
    event->count = one.count;
    event->status = static_cast<stasis_status>(status);
    write_message(message, event->reason, sizeof event->reason);
    add_event(one, std::move(event));
}

void Scheduler::end_failed(Scheduled &one) noexcept {
    stasis_error error;
    try {
        std::rethrow_exception(one.seat.error);
    } catch (...) {
        report_failure(&error);
    }
    if (error.status == STASIS_NO_TOKEN) { // a stop, as in stasis_session_generate
        end(one, Status::ok, StopReason::no_token, "");
    } else {
        end(one, static_cast<Status>(error.status), StopReason::callback, error.message);
    }
}

// Ends those that were cancelled or whose time is over, but for prompts that have begun: a pass
// undoes these.
void Scheduler::end_early() noexcept {
    for (const auto &one : members_) {
        if (one->ended() || one->in_pass || one->seat.growing) {
            continue;
        }
        if (one->cancel_requested()) {
            end(*one, Status::cancelled, StopReason::cancelled, "cancelled by the caller");
        } else if (one->deadline.passed()) {
            end(*one, Status::timeout, StopReason::timeout, "the generation's time was over");
        } else {
            continue;
        }
        one->session->gate.end_pass(); // it may have been asked for
    }
}

void Scheduler::remove(Scheduled &one) noexcept {
    one.session->gate.end_pass(); // it may have been asked for
    one.session->gate.set_owner(Gate::Owner::none);
    if (one.waiting != 0) {
        speaking_.erase(one.node);
        stats_.events -= one.waiting;
    }
    members_.erase(std::find_if(members_.begin(), members_.end(),
                                [&](const auto &each) { return each.get() == &one; }));
}

// Returns the next event of a session, or of the one whose turn it is; null: there is none.
std::unique_ptr<SchedulerEvent> Scheduler::take(const stasis_session *of) {
    Scheduled *one = nullptr;
    if (of != nullptr) {
        one = find(of);
        if (one == nullptr) {
            fail(Status::not_found, "the session is not in this scheduler");
        }
    } else if (!speaking_.empty()) {
        one = speaking_.front();
    }
    if (one == nullptr || one->waiting == 0) {
        return nullptr;
    }
    std::unique_ptr<SchedulerEvent> event = std::move(one->first);
    one->first = std::move(event->following);
    --one->waiting;
    --stats_.events;
    if (one->waiting == 0) {
        one->place.splice(one->place.begin(), speaking_, one->node);
    } else {
        speaking_.splice(speaking_.end(), speaking_, one->node);
    }
    if (event->end != 0) {
        remove(*one);
    }
    return event;
}

// ---- Passes -----------------------------------------------------------------------------------

// Chooses who takes part in the next pass, and holds their sessions. Returns whether anybody does.
bool Scheduler::plan() {
    turns_.clear();
    for (const auto &one : members_) {
        if (one->ended() || one->in_pass) {
            continue;
        }
        one->seat.leaves = one->seat.growing && one->ends_early(); // a pass undoes its prompt
        one->seat.ready = one->seat.growing || one->waiting < limits_.events_max;
        one->asked = false;
        turns_.push_back(&one->seat);
    }
    choose_seats(turns_, limits_.sessions_max, slice_.rows(), chosen_);
    std::erase_if(chosen_, [&](const Seat *seat) {
        of(seat).asked = !of(seat).session->gate.try_pass();
        return of(seat).asked;
    });
    for (const Seat *seat : chosen_) {
        of(seat).in_pass = true;
    }
    for (const Seat *seat : turns_) {
        if (!of(seat).in_pass && !of(seat).asked) {
            of(seat).session->gate.end_pass(); // its turn is not the next any more
        }
    }
    return !chosen_.empty();
}

// Computes a pass, without the lock.
void Scheduler::lead(Lock &lock, const Caller &caller) {
    leader_ = std::this_thread::get_id();
    for (const Seat *seat : chosen_) {
        of(seat).session->caller = &caller;
    }
    lock.unlock();
    const auto began = Clock::now();
    const std::exception_ptr failure = run_pass(*model_, chosen_);
    const std::chrono::duration<double> took = Clock::now() - began;
    lock.lock();
    settle(took.count());
    leader_ = std::thread::id();
    if (stopped_) { // by a callback of this pass
        let_go(lock, caller);
    }
    changed_.notify_all();
    if (failure != nullptr) {
        std::rethrow_exception(failure);
    }
}

// Takes over the results of a pass. Those that took part are behind the others from now on.
void Scheduler::settle(double seconds) noexcept {
    size_t rows = 0, prompts = 0;
    ++stats_.passes;
    stats_.most_together = std::max<uint64_t>(stats_.most_together, chosen_.size());
    stats_.pass_us_max = std::max(stats_.pass_us_max, static_cast<uint64_t>(seconds * 1e6));
    for (const Seat *seat : chosen_) {
        rows += seat->computed + (seat->drew ? 1 : 0);
        prompts += seat->computed;
        stats_.prompt_positions += seat->added;
    }
    if (prompts != 0) {
        slice_.note(rows, seconds);
    }
    std::stable_partition(members_.begin(), members_.end(),
                          [](const auto &one) { return !one->in_pass; });
    for (const Seat *seat : chosen_) {
        settle(of(seat));
    }
    chosen_.clear();
}

void Scheduler::settle(Scheduled &one) noexcept {
    one.in_pass = false;
    one.session->caller = nullptr;
    if (one.seat.drew) {
        add_token(one);
    }
    if (one.seat.error != nullptr) {
        end_failed(one);
    } else if (one.text.stop() && !one.seat.prompts()) {
        end(one, Status::ok, *one.text.stop(), "");
    }
    one.session->gate.end_pass(); // its log has what its events say
}

namespace {

// Waits until something has changed, or until a moment, if there is one.
void wait_for_change(std::condition_variable &changed, std::unique_lock<std::mutex> &lock,
                     bool ends, std::chrono::steady_clock::time_point until) {
    if (ends) {
        changed.wait_until(lock, until);
    } else {
        changed.wait(lock);
    }
}

} // namespace

std::unique_ptr<SchedulerEvent> Scheduler::next(const Caller &caller, const stasis_session *of,
                                                uint64_t timeout_ms) {
    constexpr uint64_t kLongest = uint64_t{1} << 40; // milliseconds: some 35 years
    const bool ends = timeout_ms < kLongest;
    const auto until =
        Clock::now() + std::chrono::milliseconds(ends ? static_cast<int64_t>(timeout_ms) : 0);
    Lock lock(mutex_);
    if (leads()) {
        fail(Status::busy, "called by a callback of a pass of this scheduler");
    }
    const Asking asking(*this);
    while (true) {
        if (stopped_) {
            fail(Status::cancelled, "the scheduler was stopped");
        }
        end_early();
        if (std::unique_ptr<SchedulerEvent> event = take(of)) {
            changed_.notify_all(); // its session may go on
            return event;
        }
        if (ends && (timeout_ms == 0 || Clock::now() >= until)) {
            return nullptr;
        }
        if (leader_ == std::thread::id() && plan()) {
            lead(lock, caller);
        } else { // a reader that keeps a session from a pass says when it is done
            wait_for_change(changed_, lock, ends, until);
        }
    }
}

void Scheduler::cancel(const stasis_session *session) {
    const Lock lock(mutex_);
    if (stopped_) {
        fail(Status::cancelled, "the scheduler was stopped");
    }
    Scheduled *const one = find(session);
    if (one == nullptr) {
        fail(Status::not_found, "the session is not in this scheduler");
    }
    one->cancelled = true;
    end_early();
    changed_.notify_all();
}

stasis_scheduler_stats Scheduler::stats() const {
    const Lock lock(mutex_);
    stasis_scheduler_stats stats = stats_;
    stats.sessions = members_.size();
    stats.slice = slice_.rows();
    return stats;
}

// ---- The end ----------------------------------------------------------------------------------

// Undoes a prompt that has begun, without the lock. The seat is the calling thread's. The session
// may be read meanwhile, for as long as its reader likes: then its trace is not told now.
void Scheduler::undo(Lock &lock, const Caller &caller, Scheduled &one) noexcept {
    lock.unlock();
    if (one.session->gate.try_pass()) {
        one.session->caller = &caller;
        undo_prompt(one.seat);
        one.session->caller = nullptr;
    } else {
        drop_prompt(one.seat);
    }
    lock.lock();
    one.session->gate.end_pass();
}

void Scheduler::let_go(Lock &lock, const Caller &caller) noexcept {
    leader_ = std::this_thread::get_id(); // nobody else touches a session
    for (const auto &one : members_) {
        one->in_pass = true;
    }
    for (size_t i = 0; i < members_.size(); ++i) { // nothing is added or removed any more
        if (Scheduled *const one = members_[i].get(); one->seat.growing) {
            undo(lock, caller, *one);
        }
    }
    while (!members_.empty()) {
        remove(*members_.back());
    }
    leader_ = std::thread::id();
    changed_.notify_all();
}

void Scheduler::stop(const Caller &caller) noexcept {
    Lock lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
    if (!leads()) { // else the pass lets go when it ends
        changed_.wait(lock, [&] { return leader_ == std::thread::id(); });
        let_go(lock, caller);
    }
}

void Scheduler::look_again() noexcept {
    const Lock lock(mutex_);
    changed_.notify_all();
}

Scheduler::Asking::~Asking() {
    if (--of_.asking_ == 0) {
        for (const auto &one : of_.members_) {
            if (!one->in_pass) {
                one->session->gate.end_pass();
            }
        }
    }
}

void Scheduler::forget(const stasis_session &session, const Caller &caller) noexcept {
    Lock lock(mutex_);
    Scheduled *one = nullptr;
    changed_.wait(lock, [&] {
        one = find(&session);
        return one == nullptr ||
               (!one->in_pass && (!one->seat.growing || leads() || leader_ == std::thread::id()));
    });
    if (one == nullptr) {
        return;
    }
    if (one->seat.growing) {
        const std::thread::id leader = leader_;
        leader_ = std::this_thread::get_id(); // nobody else touches it
        one->in_pass = true;
        undo(lock, caller, *one);
        leader_ = leader;
    }
    remove(*one);
    changed_.notify_all();
}

} // namespace stasis::abi
