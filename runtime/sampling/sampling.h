// Chooses the next token from a row of logits (C7): steps in a written order, integer weights, a
// counter-based generator keyed by (seed, position). Pure functions of their arguments; callers are
// in the contract's floating-point environment (C2). sampling.cpp states every step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "format/state/state.h"
#include "runtime/kernels/table.h"

namespace stasis {

// Returns the first two words of Philox 4x32-10 with key = seed and counter = position, the first
// word low.
uint64_t random_bits(uint64_t seed, uint64_t position);

// Returns the coin of XTC: the first word of the block whose counter is position and 1.
uint32_t coin_bits(uint64_t seed, uint64_t position);

// Throws Error(invalid_argument) naming the field that is out of range (NaN, infinite, negative,
// top_p or min_p above 1; a bias or breaker outside the vocabulary, named twice or out of order).
void check_sampling(const Sampling &sampling, uint32_t vocabulary);

// Returns how many of the last tokens of a log of `position` tokens `sample` reads: the longer of
// the penalties' window and DRY's range, for those that are on.
uint64_t history_length(const Sampling &sampling, uint64_t position);

// A token that may be drawn; `weight` is floor(exp(logit - best logit) * 2^40).
struct Candidate {
    float logit;
    uint32_t token;
    uint64_t weight;
};

// Memory of one sampler, reused from token to token so that later calls allocate nothing.
struct SamplingScratch {
    const kernels::Table *kernels = &kernels::best_table(); // all give the same bits
    std::vector<float> logits;                              // [vocabulary]
    std::vector<float> scaled, powers; // [vocabulary]: l of step 5, exp(l - max)
    std::vector<Candidate> candidates; // at most [vocabulary]
    std::vector<uint32_t> counts;      // [vocabulary], all zero between calls
    std::vector<uint32_t> matches;     // at most [history]
};

// Draws the token for `position`, which is the length of the log. `logits` [vocabulary] are finite;
// `sampling` has passed check_sampling; `history` holds the last tokens of the log, oldest first:
// history_length of them, or more, which change nothing. `allowed` has a bit for each token that
// may be drawn, from the lowest bit of the first word on; empty: all. Throws
// Error(invalid_argument) if biases removed every token, Error(no_token) if every one that is
// allowed.
uint32_t sample(std::span<const float> logits, const Sampling &sampling, uint64_t position,
                std::span<const uint32_t> history, SamplingScratch &scratch,
                std::span<const uint64_t> allowed = {});

} // namespace stasis
