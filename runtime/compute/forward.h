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

// Runs pass.tokens, the rows of the pass's sequences, through the model. Expects the pass fitted
// for them, and each sequence to name, for each group, every page that holds a position visible to
// it, those being written included (held by its timeline alone). Leaves the final normalised hidden
// state (bf16) of every row in pass.hidden. Marks a sequence that meets what is not finite; its
// pages may then hold anything in the new slots, as they may where a request to cancel, which is
// looked for before each layer, ends the pass with Error(cancelled): `done` of `total` is what that
// says.
void forward(Pass &pass, const Watch &watch = {}, uint64_t done = 0, uint64_t total = 0);

// The steps of a pass, for the backend to run, or to record.
void run_layers(Pass &pass, const Watch &watch, uint64_t done, uint64_t total);

// Throws Error(nonfinite) naming layer and position of a sequence that failed.
[[noreturn]] void fail_sequence(const Network &network, const Sequence &sequence);

// Computes logits [rows][vocabulary] of final normalised hidden states [rows][hidden]. Expects the
// pass fitted for them.
void project_logits(Pass &pass, const uint16_t *hidden, size_t rows, float *logits);
// Throws Error(nonfinite) naming the token of the first logit that is not finite.
void check_logits(const Network &network, std::span<const float> row);

} // namespace stasis
