// Log-probabilities of tokens for a row of logits, under the model's own distribution, which no
// step of sampling (C7) has changed. Pure functions of their arguments; callers are in the
// contract's floating-point environment (C2).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace stasis {

// Returns the n best by (logit descending, token ascending), fewer if n exceeds the vocabulary.
std::vector<std::pair<uint32_t, float>> best(std::span<const float> logits, size_t n);

// Returns log(sum(exp(logits))) of at least one logit, in double precision with the contract's own
// functions, in a fixed order.
double log_sum_exp(std::span<const float> logits);

// Log-probabilities of one token and of the best ones. The memory is reused.
struct LogProbabilities {
    float token = 0.0F;
    std::vector<uint32_t> best_tokens; // in the order of `best`
    std::vector<float> best;
    std::vector<std::pair<uint32_t, float>> heap;
};

// Computes the log-probabilities of `token` and of the n best: the logit less log_sum_exp, rounded
// to f32.
void log_probabilities(std::span<const float> logits, size_t n, uint32_t token,
                       LogProbabilities &into);

} // namespace stasis
