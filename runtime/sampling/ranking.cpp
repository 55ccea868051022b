// Candidates by steps; see ranking.h.
#include "runtime/sampling/ranking.h"

namespace stasis {

Ranking::Ranking(SamplingScratch &scratch, float max, uint64_t least)
    : scratch_(scratch), max_(max), least_(least) {
    assert(least >= 1);
    const float *scaled = scratch.scaled.data(), *powers = scratch.powers.data();
    // Two arrays in turn: additions to the same step wait for each other.
    StepSums others{};
    const auto add = [&](size_t token, StepSums &sums) {
        const uint64_t weight = weight_of(powers[token]);
        if (weight >= least) {
            sums[step_of(max, scaled[token])] += weight;
        }
    };
    const size_t count = scratch.scaled.size();
    for (size_t token = 0; token + 1 < count; token += 2) {
        add(token, sums_);
        add(token + 1, others);
    }
    if (count % 2 != 0) {
        add(count - 1, sums_);
    }
    for (size_t step = 0; step < kSteps; ++step) {
        sums_[step] += others[step];
        total_ += sums_[step];
    }
}

Ranking::End Ranking::prefix(uint64_t weight) {
    assert(weight <= total_);
    const uint64_t asked = weight;
    const size_t last = last_step(sums_, weight);

    // The candidates of this step are few.
    std::vector<Candidate> &candidates = scratch_.candidates;
    candidates.clear();
    candidates.reserve(scratch_.scaled.size()); // once
    for (uint32_t token = 0; token < scratch_.scaled.size(); ++token) {
        const float logit = scratch_.scaled[token];
        // What is below the floor has no weight, and no step.
        if (step_of(max_, std::max(logit, max_ + kernels::kDrawFloor)) != last) {
            continue;
        }
        const uint64_t own = weight_of(scratch_.powers[token]);
        if (own >= least_) {
            candidates.push_back({logit, token, own});
        }
    }
    const Candidate end = prefix_end(candidates, weight, better);
    return {end.token, asked - weight + end.weight};
}

} // namespace stasis
