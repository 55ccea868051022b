// A network: shapes, weights, kernels, threads, the device, and the KV cache that timelines share.
// Knows no text and no session. Immutable after opening, except the cache and the lists, which lock
// themselves.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "format/state/state.h"
#include "runtime/host/idle_list.h"
#include "runtime/host/memory.h"
#include "runtime/host/threads.h"
#include "runtime/kernels/table.h"
#include "runtime/kv/page_pool.h"
#include "runtime/model/config.h"
#include "runtime/model/weights.h"

namespace stasis {

class DeviceModel;
struct Backend;
struct Pass;

// A layer's place in the KV cache: its group, and its index among the group's layers. A recurrent
// layer has no group; its index is among the recurrent layers.
struct LayerPlace {
    static constexpr uint32_t kRecurrent = UINT32_MAX;

    uint32_t group = 0, index = 0;
};

struct Network {
    Memory memory; // first: every member below returns memory to it
    Config config;
    std::vector<LayerGroup> groups;
    std::vector<LayerPlace> layer_places; // [layer]
    std::vector<uint32_t> sharing;        // layers that use another's keys and values, ascending
    std::vector<PageShape> page_shapes;   // [group] of the KV cache's pages
    uint32_t recurrent_layers = 0;
    std::vector<std::vector<double>> rope_frequencies; // [rope][rotary_of / 2]
    // Of sessions with the long factors of RoPE; empty: the model has none.
    std::vector<std::vector<double>> long_rope_frequencies;
    const kernels::Table *kernels = nullptr;
    std::shared_ptr<Threads> threads; // its own, or a pool that models share
    Weights weights;
    bool joins_hidden = false;           // of an MTP head: its rows begin with Weights::mtp.join
    std::unique_ptr<DeviceModel> device; // null: the CPU
    std::string device_name, kernels_name;
    std::string profile;              // id of the device profile; "": the contract alone
    const Backend *backend = nullptr; // of the CPU or of the device
    mutable IdleList<Pass> idle_passes;
    std::unique_ptr<StatePool> states; // before the pages, whose prefix cache holds some
    std::unique_ptr<PagePool> pool;
    std::unique_ptr<NodePool> log_nodes, table_nodes; // of TokenLog and PageTable
    // KV bytes summed over timelines: a shared page counts for each.
    std::atomic<uint64_t> held_bytes{0};

    explicit Network(const Memory &memory);
    ~Network();
    Network(const Network &) = delete;
    Network &operator=(const Network &) = delete;

    // Fills in the members that follow from the configuration: groups, places, shapes, RoPE
    // frequencies.
    void describe_layers();
    // Makes the memory of pages, states and nodes, after the layers were described.
    void make_cache(const PageMemory &pages, uint64_t kv_budget_bytes, uint64_t state_budget_bytes);
    // Returns the numbers of the states of all recurrent layers at one position; 0: there are none.
    size_t state_size() const { return recurrent_layers * config.recurrent.state_size(); }
    // Returns the bytes of idle passes.
    uint64_t scratch_bytes() const;

  private:
    void place_layers();
};

} // namespace stasis
