// Draws the token that follows a timeline; see draw.h.
#include "runtime/session/draw.h"

#include "runtime/compute/pass.h"
#include "runtime/sampling/sampling.h"

namespace stasis {

uint32_t draw_from(const Timeline &timeline, const Sampling &sampling,
                   std::span<const uint64_t> allowed, std::span<const float> row, Pass &pass) {
    const uint64_t end = timeline.position();
    pass.tokens.clear();
    if (const uint64_t length = history_length(sampling, end); length > 0) {
        pass.tokens.reserve((end / kPage + 1) * kPage);
        for (uint64_t i = end - length; i < end; ++i) {
            pass.tokens.push_back(timeline.log[i].token);
        }
    }
    pass.sampling.kernels = timeline.network->kernels;
    return sample(row, sampling, end, pass.tokens, pass.sampling, allowed);
}

uint32_t draw_next(Timeline &timeline, const Sampling &sampling, std::span<const uint64_t> allowed,
                   Pass &pass) {
    const std::span<const float> row = timeline.compute_logits(pass);
    return draw_from(timeline, sampling, allowed, row, pass);
}

} // namespace stasis
