// Draws the token that follows a timeline. Knows neither sessions nor generation.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/timeline/timeline.h"

namespace stasis {

// Draws from a row of logits by `sampling`, whose penalties read the log, one of the tokens that
// `allowed` has a bit for; empty: of all. `pass` provides memory.
uint32_t draw_from(const Timeline &timeline, const Sampling &sampling,
                   std::span<const uint64_t> allowed, std::span<const float> row, Pass &pass);

// Computes the logits, into pass.logits, and draws. Throws as Timeline::compute_logits.
uint32_t draw_next(Timeline &timeline, const Sampling &sampling, std::span<const uint64_t> allowed,
                   Pass &pass);

} // namespace stasis
