// The forward pass of every architecture: tokens in, keys and values into pages, final normalised
// hidden state out. Reads the description in Config; holds no state of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "format/state/watch.h"
#include "runtime/compute/network.h"
#include "runtime/compute/workspace.h"

namespace stasis {

// Runs work.tokens, the rows of the sequences in work.pass(), through the model. Expects `work`
// fitted for them, and each sequence to name, for each group, every page that holds a position
// visible to it, those being written included (held by its session alone). Leaves the final
// normalised hidden state (bf16) of every row in work.hidden. A sequence that meets what is not
// finite is marked; its pages may then hold anything in the new slots, as they may where a request
// to cancel, which is looked for before each layer, ends the pass with Error(cancelled): `done` of
// `total` is what that says.
void forward(const Network &network, Workspace &work, const Watch &watch = {}, uint64_t done = 0,
             uint64_t total = 0);

// Throws Error(nonfinite) naming layer and position of a sequence that failed.
[[noreturn]] void fail_sequence(const Network &network, const Sequence &sequence);

// Logits [rows][vocabulary] of so many final normalised hidden states. Expects `work` fitted for
// them.
void project_logits(const Network &network, Workspace &work, const uint16_t *hidden, size_t rows,
                    float *logits);
// Throws Error(nonfinite) naming the token of the first of them that is not finite.
void check_logits(const Network &network, std::span<const float> row);

// Attention of one layer over the pages of each sequence (C5): work.query_bf16 of all rows to
// `output` [rows][heads * head_dim] bf16.
void attend(const Network &network, Workspace &work, size_t layer, uint16_t *output);

} // namespace stasis
