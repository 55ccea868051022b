// What requests are served with: models, sessions, workers, limits, and the requests that run.
// Must not know HTTP's forms of requests.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tools/serve/engine/deadlines.h"
#include "tools/serve/engine/kept.h"
#include "tools/serve/engine/pinger.h"
#include "tools/serve/engine/served_model.h"
#include "tools/serve/engine/sessions.h"
#include "tools/serve/engine/workers.h"

namespace serve {

struct EngineLimits {
    uint32_t sessions_max = 64; // that draw a token in a pass
    size_t running_max = 256;   // replies that run or wait at the same time; more get 429
    uint64_t tokens_max = 0;    // of a reply; 0: up to the model's context
    uint64_t timeout_ms = 0;    // of a reply, from its request on; 0: none
    uint64_t ping_ms = 15000;   // of silence in a stream before a sign of life
    size_t live_max = 64;       // sessions kept in memory that do not run ...
    uint64_t live_bytes = uint64_t{1} << 30; // ... with keys and values of at most this many bytes
};

struct EngineCounts {
    std::atomic<uint64_t> replies{0}, refused{0}, failed{0}, left{0};
    std::atomic<uint64_t> slow_cut{0};              // requests of the slow workers
    std::atomic<uint64_t> waits{0}, waits_begun{0}; // for memory; of them those with a token drawn
    std::atomic<uint64_t> prompt_tokens{0}, cached_tokens{0}, reply_tokens{0};
};

class Engine {
  public:
    Engine(std::vector<std::unique_ptr<ServedModel>> models, Store store,
           const EngineLimits &limits);

    // Returns the model of this name; "" is the first one. Throws api::Refused.
    ServedModel &model(const std::string &name) const;
    const std::vector<std::unique_ptr<ServedModel>> &models() const { return models_; }
    Sessions &sessions() { return sessions_; }
    KeptConversations &kept() { return kept_; }
    // For what a reply waits for; and for what may take minutes, and must not keep replies waiting.
    Pinger &pinger() { return pinger_; }
    Deadlines &deadlines() { return deadlines_; }
    Workers &workers() { return workers_; }
    Workers &slow_workers() { return slow_workers_; }
    // Throws api::Refused: too much waits for the slow ones already.
    void require_slow_place() const;
    const EngineLimits &limits() const { return limits_; }
    EngineCounts &counts() { return counts_; }

    // Takes places for replies, and knows the handle by which their request is cancelled, until it
    // is forgotten. Throws api::Refused: too many run, or the server is shutting down.
    void enter(stasis_cancel *request, size_t replies);
    void leave(size_t replies);
    void forget(stasis_cancel *request);
    // The same for a place of those that ask for what is stored, of which there are few: a store
    // that stands still keeps a thread for each.
    void enter_stored();
    void leave_stored();
    size_t stored() const; // that have such a place
    size_t running() const;
    // Counts a reply that is sent from a file. Throws api::Refused: too many are already.
    void begin_sending();
    void end_sending();
    size_t sending() const;
    // Ends the workers, after all that was given to them. Nothing may come any more.
    void finish();
    // Refuses all that comes. Returns how many requests run.
    size_t refuse_all();
    // After `refuse_all`: waits until nothing runs and nothing is sent from a file, or, after the
    // time, cancels what runs and waits as long again, some seconds at least. False: something
    // still runs.
    bool close(uint32_t seconds);
    bool closing() const { return closing_.load(); }

  private:
    const EngineLimits limits_;
    const std::vector<std::unique_ptr<ServedModel>> models_;
    Sessions sessions_;
    KeptConversations kept_;
    EngineCounts counts_;
    std::atomic<bool> closing_{false};
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::set<stasis_cancel *> requests_;
    size_t running_ = 0, stored_ = 0, sending_ = 0;
    Workers slow_workers_, workers_; // their threads end before all above
    Pinger pinger_;                  // as these do before the workers
    Deadlines deadlines_;
};

} // namespace serve
