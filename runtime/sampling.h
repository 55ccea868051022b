// Choosing the next token from a row of logits (C7): processors in a written order, integer
// weights, a counter-based generator keyed by (seed, position). Pure functions of their arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "format/state.h"

namespace stasis {

// Philox 4x32-10 (Salmon et al., SC 2011): key = seed, counter = position. The low 64 bits.
uint64_t random_bits(uint64_t seed, uint64_t position);

// Throws Error(invalid_argument) naming the field that is out of range (NaN, negative, > 1, bias
// token outside the vocabulary or named twice).
void check_sampling(const Sampling &sampling, uint32_t vocabulary);

// Memory of one sampler, reused from token to token so that warm sampling allocates nothing.
struct SamplingScratch {
    std::vector<float> logits;                         // [vocabulary]
    std::vector<std::pair<float, uint32_t>> candidates; // logit, token
    std::vector<uint64_t> weights;
    std::vector<uint32_t> counts;
};

// Draws the token at `position` (the position it will take). `logits` [vocabulary]; `history` holds
// the last min(position, penalty_window) tokens of the log (the whole log for penalty_window 0),
// oldest first. Throws Error(invalid_argument) if a bias removed every token.
uint32_t sample(std::span<const float> logits, const Sampling &sampling, uint64_t position,
                std::span<const uint32_t> history, SamplingScratch &scratch);

// The n best by (logit descending, token ascending), fewer if n exceeds the vocabulary.
std::vector<std::pair<uint32_t, float>> best(std::span<const float> logits, size_t n);

// log(sum(exp(logits))) in double precision with the contract's own functions, in a fixed order.
double log_sum_exp(std::span<const float> logits);

// Finds stop strings in text that arrives in pieces, holding back what may yet become one.
class StopStrings {
  public:
    explicit StopStrings(std::vector<std::string> strings);
    // Adds text; returns how many bytes of everything added so far are certain to be shown.
    // After a match `stopped` is true and the shown text ends before the stop string.
    size_t add(std::string_view text);
    // The text has ended: nothing is held back any more.
    size_t finish();
    bool stopped() const { return stopped_; }

  private:
    std::vector<std::string> strings_;
    std::string text_; // everything added that may still matter
    size_t shown_ = 0, dropped_ = 0;
    bool stopped_ = false;
};

} // namespace stasis
