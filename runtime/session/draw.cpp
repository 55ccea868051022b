// See draw.h.
#include "runtime/session/draw.h"

#include "runtime/compute/workspace.h"
#include "runtime/sampling/sampling.h"

namespace stasis {

uint32_t draw_from(const Timeline &timeline, const Sampling &sampling, std::span<const float> row,
                   Workspace &work) {
    const uint64_t end = timeline.position();
    work.tokens.clear();
    if (const uint64_t length = history_length(sampling, end); length > 0) {
        work.tokens.reserve((end / kPage + 1) * kPage);
        for (uint64_t i = end - length; i < end; ++i) {
            work.tokens.push_back(timeline.log[i].token);
        }
    }
    return sample(row, sampling, end, work.tokens, work.sampling);
}

uint32_t draw_next(Timeline &timeline, const Sampling &sampling, Workspace &work) {
    const Network &network = *timeline.network;
    work.fit(network.config, network.weights.groups, 1);
    const std::span<float> row{work.logits, network.config.vocabulary};
    timeline.compute_logits(work, row);
    return draw_from(timeline, sampling, row, work);
}

} // namespace stasis
