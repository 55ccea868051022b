// A scheduler over stasis_sessions_step: continuous batching. Every step decodes one token of each
// session that decodes and fills up with pieces of prompts. A request waits until the KV budget
// suffices for all that it may need, so that no request is interrupted after it has begun.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "tools/serve/requests.h"

namespace serve {

struct Limits {
    size_t step_tokens_max = 64; // positions computed in a step, decoding first
    size_t sessions_max = 16;
};

struct Totals {
    uint64_t steps = 0, prompt_tokens = 0, new_tokens = 0;
    size_t most_together = 0; // sessions in one step
    size_t most_waiting = 0;  // requests that had arrived and were not admitted
    uint64_t kv_peak_bytes = 0;
    uint64_t mixed_steps = 0; // steps with both pieces of prompts and decoding
};

class Scheduler {
  public:
    // `requests` must be in the order of their arrival and outlive the scheduler.
    Scheduler(stasis_model *model, const std::vector<Request> &requests, const Limits &limits);

    // Computes one step. Returns false if every request has its reply. Throws Failure.
    bool step();

    const std::vector<Reply> &replies() const { return replies_; }
    const Totals &totals() const { return totals_; }

  private:
    struct Running {
        size_t request;
        command::Session session;
        command::TextStream text;
        uint64_t reserved_bytes;
        size_t appended = 0; // tokens of the prompt
    };

    void let_arrive();
    void admit();
    uint64_t bytes_needed(const Request &request) const;
    void plan();
    void compute();
    void take(Running &running, const stasis_step_item &item, const stasis_error &error);
    End hear(Running &running, stasis_token token);
    void end(Running &running, End end);

    stasis_model *model_;
    const std::vector<Request> &requests_;
    const Limits limits_;
    stasis_model_info info_{};
    uint64_t budget_bytes_ = 0, reserved_bytes_ = 0;
    size_t arrived_ = 0;
    std::deque<size_t> waiting_;
    std::vector<Running> running_;
    std::vector<Reply> replies_;
    Totals totals_;
    // Contents of one step.
    std::vector<stasis_step_item> items_;
    std::vector<size_t> item_of_; // [item] index in running_
    std::vector<stasis_token> tokens_;
    std::vector<stasis_error> errors_;
};

} // namespace serve
