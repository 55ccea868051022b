// One step of many sessions of a model, computed together. Each session gets the same bits as
// alone. Knows neither callbacks nor text.
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

// One session's part of a step: appends tokens; then, if `sample` is set, draws one and appends it.
struct StepItem {
    Session *session;
    std::span<const uint32_t> tokens;
    bool sample = false;
    uint32_t token = 0;                 // the token drawn
    std::exception_ptr error = nullptr; // set: the session is as it was, or lacks only the draw
    bool ended_call = false;            // the error ended the whole call: cancelled, stopped
    void *owner = nullptr;              // for the caller's use
    // Called with the token drawn, before it is appended; null: not. What it throws is the error.
    void (*drawn)(const StepItem &item, std::span<const float> row) = nullptr;
};

// Throws Error(invalid_argument) for sessions of several models, or for one session given twice.
void check_step(std::span<const StepItem> items);

// Runs a step. An item's error does not affect the others; throws nothing. The items must satisfy
// check_step.
void run_step(std::span<StepItem> items, const AppendOptions &options);

// Memory that steps reuse, so that later steps allocate nothing.
struct StepBuffers {
    std::vector<StepItem> items; // filled by the caller
    std::vector<const Session *> sessions;
    std::vector<StepItem *> drawing, growing;
    std::vector<TokenEntry> entries;
    std::vector<Append> appends;

    void clear();
};

// The parts of a step of which batches make their passes (batch.cpp).
// Draws the next token of each item. Items without logits get their error, and are removed from
// `ready`; `watch` can cancel the computation of states that a rewind cut off. `spread`: the
// model's threads draw, which takes memory for each; a draw may take as long as a row of the pass.
void draw_together(Model &model, std::vector<StepItem *> &ready, bool spread, const Watch &watch);
// Collects the entries that the items of a round append, and an Append for each of these items,
// which becomes one of `growing`. The first round (`behind` false) appends given tokens and draws
// where none are given; the second draws after given tokens.
void collect_appends(std::span<StepItem> items, bool behind, StepBuffers &buffers);

// Holds buffers during one step; idle ones are reused.
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
