// The forward pass of every architecture: tokens in, keys and values into pages, final normalised
// hidden state out. Reads the description in Config; holds no state of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "format/state/watch.h"
#include "runtime/compute/network.h"
#include "runtime/compute/pass.h"

namespace stasis {

// Runs pass.tokens, the rows of the pass's sequences, through the model, and stores the final
// normalised hidden state (bf16) of every row in pass.hidden.
// The caller fits the pass to the rows first. Each sequence names, for each group, every page that
// holds a position visible to it. These include the pages being written, which its timeline alone
// must hold.
// Marks a sequence that has a value that is not finite. Looks for a request to cancel before each
// layer; Error(cancelled) then names `done` of `total`. After a failure or a cancel the new slots
// of the pages may have any contents.
void forward(Pass &pass, const Watch &watch = {}, uint64_t done = 0, uint64_t total = 0);

// Runs the steps of a pass, for the backend to execute or to record.
void run_layers(Pass &pass, const Watch &watch, uint64_t done, uint64_t total);

// Throws Error(nonfinite) naming layer and position of a sequence that failed.
[[noreturn]] void fail_sequence(const Network &network, const Sequence &sequence);

// Computes logits [rows][vocabulary] of final normalised hidden states [rows][hidden]. The pass
// must be fitted to `rows`.
void project_logits(Pass &pass, const uint16_t *hidden, size_t rows, float *logits);
// Throws Error(nonfinite) naming the token of the first logit that is not finite.
void check_logits(const Network &network, std::span<const float> row);

} // namespace stasis
