// A service over stasis_scheduler_*: requests arrive, are admitted, answered and forgotten; the
// scheduler computes them together. What is the host's own business: a request waits until the KV
// budget suffices for all that it may need, so that no request is interrupted after it has begun.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "tools/serve/requests.h"

namespace serve {

struct Limits {
    uint32_t slice = 0; // positions of prompts in a pass; 0: the scheduler chooses
    size_t sessions_max = 16;
};

class Service {
  public:
    // `requests` must be in the order of their arrival and outlive the service. Throws Failure.
    Service(stasis_model *model, const std::vector<Request> &requests, const Limits &limits);

    // Takes one event. Returns false if every request has its reply. Throws Failure.
    bool advance();

    const std::vector<Reply> &replies() const { return replies_; }
    stasis_scheduler_stats stats() const;
    size_t most_waiting() const { return most_waiting_; } // that had arrived, not admitted
    uint64_t kv_peak_bytes() const { return kv_peak_bytes_; }

  private:
    using Scheduler = std::unique_ptr<stasis_scheduler, command::Releaser<stasis_scheduler_close>>;
    struct Running {
        size_t request;
        command::Session session;
        uint64_t reserved_bytes;
    };

    void let_arrive();
    void admit();
    void submit(stasis_session *session, const Request &request);
    uint64_t bytes_needed(const Request &request) const;
    void take(const stasis_scheduler_event &event);
    void end(Running &running, const stasis_scheduler_event &event);

    stasis_model *model_;
    const std::vector<Request> &requests_;
    const Limits limits_;
    stasis_model_info info_{};
    uint64_t budget_bytes_ = 0, reserved_bytes_ = 0, kv_peak_bytes_ = 0;
    uint64_t pass_ = 0, idle_ = 0; // the last that an event told of; those without any request
    size_t arrived_ = 0, most_waiting_ = 0;
    std::deque<size_t> waiting_;
    Scheduler scheduler_;
    std::map<const stasis_session *, Running> running_; // freed before the scheduler is closed
    std::vector<Reply> replies_;
};

} // namespace serve
