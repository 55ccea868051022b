// A scheduler: which sessions are in it, which of the threads that wait for events computes the
// next pass, and the events that wait. Must not know how a pass is computed.
//
// One mutex guards all of it. It is not held while a pass runs, nor while anything else runs that
// may call the host back: then `leader_` is the thread that runs it, and the sessions of the pass
// are held by their gates. A session whose prompt has begun is as before it until all of it is in
// the log. One that is being read misses the pass, and asks for the next.
#pragma once

#include <chrono>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "abi/cancel.h"
#include "abi/handles.h"
#include "runtime/session/batch.h"
#include "runtime/session/text_stream.h"

namespace stasis::abi {

struct SchedulerEvent : stasis_scheduler_event {
    std::string words;
    LogProbabilities likely;
    char reason[sizeof(stasis_error::message)] = "";
    std::unique_ptr<SchedulerEvent> following; // of the same session
};

// One session in a scheduler.
struct Scheduled {
    // Throws Error for options that the session cannot serve after the prompt.
    Scheduled(stasis_session &of, GenerateOptions given, Prompt prompt, stasis_cancel *cancel_,
              void *user_, Deadline deadline_);
    ~Scheduled();

    stasis_session *const session;
    const GenerateOptions options;
    void *const user;
    const HeldCancel cancel;
    const Deadline deadline; // of the prompt and all tokens
    TextStream text;
    Seat seat;
    uint64_t begin, position = 0; // of the first new token, of the last one
    uint64_t count = 0;           // of tokens
    uint32_t token = 0;           // the last one

    std::unique_ptr<SchedulerEvent> staged; // of the token that is being appended
    std::unique_ptr<SchedulerEvent> last;   // made before it is needed; null: the session has ended
    std::unique_ptr<SchedulerEvent> first;  // of those that wait, and the newest of them
    SchedulerEvent *newest = nullptr;
    size_t waiting = 0;
    // Its node of the list of those with events: there, or while it has none in a list of its own.
    std::list<Scheduled *> place;
    const std::list<Scheduled *>::iterator node;

    bool in_pass = false;   // the leader has it
    bool asked = false;     // it missed the last pass, for it was being read
    bool cancelled = false; // it ends when the leader has it no more

    bool ended() const { return last == nullptr; }
    bool cancel_requested() const {
        return cancelled || (cancel.get() != nullptr && cancel.get()->requested.load());
    }
    bool ends_early() const { return cancel_requested() || deadline.passed(); }

  private:
    static void hear(void *user, uint32_t token, std::span<const float> row);
};

struct SchedulerLimits {
    size_t sessions_max = 64, events_max = 16, slice = 0; // slice 0: by the speed
    double stall_seconds = 0.1;
};

class Scheduler : public std::enable_shared_from_this<Scheduler> {
  public:
    Scheduler(std::shared_ptr<Model> model, const SchedulerLimits &limits);

    // The session is held by the calling thread. Throws Error(invalid_argument) for another model's
    // and Error(cancelled).
    void submit(stasis_session &session, std::unique_ptr<Scheduled> one);
    // Returns null after the time. Throws the error of a pass, which is over then.
    std::unique_ptr<SchedulerEvent> next(const Caller &caller, const stasis_session *of,
                                         uint64_t timeout_ms);
    void cancel(const stasis_session *session);
    stasis_scheduler_stats stats() const;
    void stop(const Caller &caller) noexcept;
    // Says that a session which was asked for its pass is read no more.
    void look_again() noexcept;
    // Removes a session that is about to be freed, if it is there.
    void forget(const stasis_session &session, const Caller &caller) noexcept;

  private:
    using Lock = std::unique_lock<std::mutex>;
    using Clock = std::chrono::steady_clock;
    // Counts the threads in `next`. When the last one leaves, sessions that were asked for a pass
    // are no more, for there may be none.
    class Asking {
      public:
        explicit Asking(Scheduler &of) : of_(of) { ++of_.asking_; }
        ~Asking();
        Asking(const Asking &) = delete;
        Asking &operator=(const Asking &) = delete;

      private:
        Scheduler &of_;
    };

    Scheduled *find(const stasis_session *session) const;
    std::unique_ptr<SchedulerEvent> take(const stasis_session *of);
    void remove(Scheduled &one) noexcept;
    void add_event(Scheduled &one, std::unique_ptr<SchedulerEvent> event) noexcept;
    void add_token(Scheduled &one) noexcept;
    void end(Scheduled &one, Status status, StopReason reason, const char *message) noexcept;
    void end_failed(Scheduled &one) noexcept;
    void end_early() noexcept;
    bool plan();
    void lead(Lock &lock, const Caller &caller);
    void settle(double seconds) noexcept;
    void settle(Scheduled &one) noexcept;
    void undo(Lock &lock, const Caller &caller, Scheduled &one) noexcept;
    void let_go(Lock &lock, const Caller &caller) noexcept;
    bool leads() const { return leader_ == std::this_thread::get_id(); }

    const std::shared_ptr<Model> model_;
    const SchedulerLimits limits_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::thread::id leader_; // none: nobody computes
    bool stopped_ = false;
    size_t asking_ = 0;
    std::vector<std::unique_ptr<Scheduled>> members_; // in the order of their turns
    std::list<Scheduled *> speaking_;                 // have events, in the order of their turns
    std::vector<Seat *> turns_, chosen_;              // of the next pass
    SliceSize slice_;
    stasis_scheduler_stats stats_{};
};

} // namespace stasis::abi

struct stasis_scheduler {
    const std::shared_ptr<stasis::abi::Scheduler> scheduler;
};
