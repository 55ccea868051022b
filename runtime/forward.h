// The forward pass of every architecture: tokens in, keys and values into pages, final normalised
// hidden state out. Reads the description in Config; holds no state of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/model.h"
#include "runtime/workspace.h"

namespace stasis {

// Runs tokens at positions begin, begin + 1, ... through the model. Expects `work` fitted for them,
// and work.pages / first_page to name, for each group, every page that holds a position visible to
// them, the ones being written included (held by the caller alone). Leaves the final normalised
// hidden state (bf16) of every row in work.hidden. Throws Error(nonfinite) naming layer and
// position; pages may then hold anything in the new slots.
void forward(const Model &model, Workspace &work, std::span<const uint32_t> tokens, uint64_t begin);

// Logits [vocabulary] of one final normalised hidden state. Expects `work` fitted. Throws
// Error(nonfinite).
void project_logits(const Model &model, Workspace &work, const uint16_t *hidden, float *logits);

// Attention of one layer over its pages (C5): work.query_bf16 of `rows` positions from `begin` on
// to `output` [rows][heads * head_dim] bf16.
void attend(const Model &model, Workspace &work, size_t layer, uint64_t begin, size_t rows,
            uint16_t *output);

} // namespace stasis
