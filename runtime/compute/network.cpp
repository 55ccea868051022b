// Derives groups and shapes from the configuration; see network.h.
#include "runtime/compute/network.h"

#include <set>

#include "runtime/compute/device/weights.h"
#include "runtime/compute/pass.h"
#include "runtime/model/rope.h"

namespace stasis {

Network::Network(const Memory &memory_) : memory(memory_) {}

Network::~Network() = default;

void Network::describe_layers() {
    for (const Rope &rope : config.ropes) {
        rope_frequencies.push_back(stasis::rope_frequencies(rope, config.rotary()));
        if (config.long_rope_from() != 0) {
            long_rope_frequencies.push_back(stasis::rope_frequencies(rope, config.rotary(), true));
        }
    }
    // Layers with the same window share pages: one group for each window, global layers first.
    std::set<uint32_t> windows;
    layer_places.resize(config.layers);
    for (uint32_t layer = 0; layer < config.layers; ++layer) {
        if (config.layer[layer].recurrent) {
            layer_places[layer] = {LayerPlace::kRecurrent, recurrent_layers++};
        } else {
            windows.insert(config.layer[layer].window);
        }
    }
    for (uint32_t window : windows) {
        LayerGroup group{window, {}};
        for (uint32_t layer = 0; layer < config.layers; ++layer) {
            if (!config.layer[layer].recurrent && config.layer[layer].window == window) {
                layer_places[layer] = {static_cast<uint32_t>(groups.size()),
                                       static_cast<uint32_t>(group.layers.size())};
                group.layers.push_back(layer);
            }
        }
        page_shapes.push_back({group.layers.size(), config.kv_heads, config.head_dim});
        groups.push_back(std::move(group));
    }
}

void Network::make_cache(const PageMemory &pages, uint64_t kv_budget_bytes,
                         uint64_t state_budget_bytes) {
    states = std::make_unique<StatePool>(memory, state_size(), state_budget_bytes);
    pool = std::make_unique<PagePool>(pages, kv_budget_bytes, page_shapes);
    log_nodes = std::make_unique<NodePool>(memory, sizeof(TokenLog::Node));
    table_nodes = std::make_unique<NodePool>(memory, sizeof(PageTable::Node));
}

uint64_t Network::scratch_bytes() const {
    return idle_passes.size_bytes();
}

} // namespace stasis
