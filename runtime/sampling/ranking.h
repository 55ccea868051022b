// The candidates of a row in their order, without a list of them: draws with the usual settings
// need no more of it than the step in which a prefix ends. Knows neither settings nor chance.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/sampling/prefix.h"
#include "runtime/sampling/sampling.h"

namespace stasis {

class Ranking {
  public:
    // `scratch.scaled` and `scratch.powers` are the row's, `max` is the best logit, at temperature.
    // Only candidates with a weight of at least `least`, which is at least 1, count.
    Ranking(SamplingScratch &scratch, float max, uint64_t least);

    uint64_t total() const { return total_; } // of all weights

    // Where the shortest prefix ends whose weights add up to at least `weight`, in [1, total()].
    struct End {
        uint32_t token;   // the last one
        uint64_t weights; // of the whole prefix
    };
    End prefix(uint64_t weight);

  private:
    SamplingScratch &scratch_;
    const float max_;
    const uint64_t least_;
    StepSums sums_{};
    uint64_t total_ = 0;
};

} // namespace stasis
