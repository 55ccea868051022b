// Carves the scratch of experts from one block; see expert_scratch.h.
#include "runtime/compute/cpu/expert_scratch.h"

#include <algorithm>

#include "runtime/compute/network.h"
#include "runtime/host/carver.h"

namespace stasis {

ExpertScratch::ExpertScratch(const Network &network_)
    : network(network_), storage(network_.memory), packed_storage(network_.memory) {}

void ExpertScratch::fit(size_t rows) {
    const Experts &experts = network.config.experts;
    if (experts.count == 0) {
        return;
    }
    const size_t hidden = network.config.hidden;
    const size_t slice = std::min(rows, kExpertRows), assignments = slice * experts.chosen;
    const auto carve = [&](uint8_t *base) {
        Carver<64> carver{base};
        logits = carver.take<float>(rows * experts.count);
        if (experts.shared != 0) {
            shared_gate = carver.take<float>(rows);
            shared_inner = carver.take<uint16_t>(rows * experts.shared);
            shared_output = carver.take<float>(rows * hidden);
        }
        mlp_output = carver.take<float>(experts.beside_mlp ? rows * hidden : 0);
        chosen = carver.take<uint32_t>(assignments);
        share = carver.take<float>(assignments);
        place = carver.take<uint32_t>(assignments);
        row = carver.take<uint32_t>(assignments);
        input = carver.take<uint16_t>(assignments * hidden);
        inner = carver.take<uint16_t>(assignments * experts.intermediate);
        output = carver.take<float>(assignments * hidden);
        return carver.used;
    };
    groups.reserve(std::min<size_t>(assignments, experts.count));
    counts.resize(experts.count);
    storage.grow(carve(nullptr));
    carve(static_cast<uint8_t *>(storage.data()));
}

uint8_t *ExpertScratch::fit_packed(size_t size_bytes) {
    if (size_bytes > packed_storage.size_bytes()) {
        packed_storage.grow(size_bytes + size_bytes / 4);
    }
    return static_cast<uint8_t *>(packed_storage.data());
}

} // namespace stasis
