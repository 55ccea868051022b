// One step of many sessions of a model, computed together: each gets the bits that it gets alone.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "runtime/timeline/append.h"

namespace stasis {

class Session;
struct Model;

// What one session does in a step: appends tokens, then, if asked to, draws one and appends it.
struct StepItem {
    Session *session;
    std::span<const uint32_t> tokens;
    bool sample = false;
    uint32_t token = 0;                 // the one drawn
    std::exception_ptr error = nullptr; // set: the session is as it was, or lacks only the draw
    bool ended_call = false;            // the error is that of the whole call: cancelled, stopped
    void *owner = nullptr;              // the caller's
};

// Throws Error(invalid_argument) for sessions of several models, or one twice.
void check_step(std::span<const StepItem> items);

// Runs a step. An item's error leaves the others alone; nothing is thrown. Expects what check_step
// checks.
void run_step(std::span<StepItem> items, const AppendOptions &options);

// Memory that steps use again, so that warm ones allocate nothing.
struct StepBuffers {
    std::vector<StepItem> items; // the caller's to fill
    std::vector<const Session *> sessions;
    std::vector<StepItem *> drawing, growing;
    std::vector<TokenEntry> entries;
    std::vector<Append> appends;

    void clear();
};

// Buffers for the length of one step; idle ones are reused.
class StepLease {
  public:
    explicit StepLease(Model &model);
    ~StepLease();
    StepLease(const StepLease &) = delete;
    StepLease &operator=(const StepLease &) = delete;
    StepBuffers &operator*() const { return *buffers_; }
    StepBuffers *operator->() const { return buffers_.get(); }

  private:
    Model &model_;
    std::unique_ptr<StepBuffers> buffers_;
};

} // namespace stasis
