// Choosing the next token from a row of logits (C7): processors in a written order, integer
// weights, a counter-based generator keyed by (seed, position). Pure functions of their arguments;
// callers are in the contract's floating-point environment (C2). sampling.cpp states every step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "format/state.h"

namespace stasis {

// Philox 4x32-10 with key = seed and counter = position: the first two words of the block, the
// first one low.
uint64_t random_bits(uint64_t seed, uint64_t position);

// Throws Error(invalid_argument) naming the field that is out of range (NaN, infinite, negative,
// top_p or min_p above 1; a bias on a token outside the vocabulary, named twice or out of order).
void check_sampling(const Sampling &sampling, uint32_t vocabulary);

// Whether some penalty is on: without one, `sample` does not look at the history.
bool uses_history(const Sampling &sampling);

// A token that may be drawn; `weight` is floor(exp(logit - best logit) * 2^40).
struct Candidate {
    float logit;
    uint32_t token;
    uint64_t weight;
};

// Memory of one sampler, reused from token to token so that warm sampling allocates nothing.
struct SamplingScratch {
    std::vector<float> logits;         // [vocabulary]
    std::vector<Candidate> candidates; // at most [vocabulary]
    std::vector<uint32_t> counts;      // [vocabulary], all zero between calls
};

// Draws the token at `position` (the position it will take). `logits` [vocabulary] are finite;
// `sampling` has passed check_sampling; `history` holds the last min(position, penalty_window)
// tokens of the log (the whole log for penalty_window 0), oldest first, and may be empty where
// uses_history is false. Throws Error(invalid_argument) if biases removed every token.
uint32_t sample(std::span<const float> logits, const Sampling &sampling, uint64_t position,
                std::span<const uint32_t> history, SamplingScratch &scratch);

// The n best by (logit descending, token ascending), fewer if n exceeds the vocabulary.
std::vector<std::pair<uint32_t, float>> best(std::span<const float> logits, size_t n);

// log(sum(exp(logits))) of at least one logit, in double precision with the contract's own
// functions, in a fixed order.
double log_sum_exp(std::span<const float> logits);

} // namespace stasis
