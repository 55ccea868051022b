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
        const uint32_t rotary = config.rotary_of(rope);
        rope_frequencies.push_back(stasis::rope_frequencies(rope, rotary));
        if (config.long_rope_from() != 0) {
            long_rope_frequencies.push_back(stasis::rope_frequencies(rope, rotary, true));
        }
    }
    place_layers();
}

// Layers with the same window share pages: one group for each window, global layers first. They
// have the same sizes. A layer that uses another's keys and values has that one's place.
void Network::place_layers() {
    std::set<uint32_t> windows;
    layer_places.resize(config.layers);
    for (uint32_t layer = 0; layer < config.layers; ++layer) {
        const LayerConfig &kind = config.layer[layer];
        if (kind.recurrent) {
            layer_places[layer] = {LayerPlace::kRecurrent, recurrent_layers++};
        } else if (kind.own_keys()) {
            windows.insert(kind.window);
        } else {
            sharing.push_back(layer);
        }
    }
    for (uint32_t window : windows) {
        LayerGroup group{window, {}};
        for (uint32_t layer = 0; layer < config.layers; ++layer) {
            const LayerConfig &kind = config.layer[layer];
            if (!kind.recurrent && kind.own_keys() && kind.window == window) {
                layer_places[layer] = {static_cast<uint32_t>(groups.size()),
                                       static_cast<uint32_t>(group.layers.size())};
                group.layers.push_back(layer);
            }
        }
        const LayerConfig &kind = config.layer[group.layers.front()];
        const uint32_t kv_heads = config.kv_heads_of(kind), head_dim = config.head_dim_of(kind);
        page_shapes.push_back({group.layers.size(), kv_heads, head_dim});
        if (kv_heads != config.kv_heads || head_dim != config.head_dim) {
            group.kv_heads = kv_heads;
            group.head_dim = head_dim;
        }
        groups.push_back(std::move(group));
    }
    for (const uint32_t layer : sharing) {
        layer_places[layer] = layer_places[config.layer[layer].keys_of];
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
