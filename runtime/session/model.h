// A model as a host opens it: the network, tokenizer, chat template, and the KV cache that its
// sessions share. Immutable after opening, but for pools and lists, which lock themselves.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "format/state/state.h"
#include "format/state/watch.h"
#include "runtime/compute/network.h"
#include "runtime/host/idle_list.h"
#include "runtime/kernels/device.h"
#include "runtime/kv/page_pool.h"
#include "runtime/sampling/recommended.h"
#include "runtime/text/chat.h"
#include "runtime/text/tokenizer.h"

namespace stasis {

struct ModelOptions {
    size_t threads = 0; // 0: one per available core
    std::string device = "cpu";
    // In place of the device's installed module; null: that one.
    const kernels::DeviceTable *device_module = nullptr;
    std::string profile;          // "": the contract; "device": the device's, where it has one
    std::string kernels;          // "": best
    uint64_t kv_budget_bytes = 0; // 0: no limit
    std::string chat_template;    // "": recognised
    bool copy_weights = false;    // nothing is mapped
    Memory memory;
    const PageMemory *page_memory = nullptr; // of KV pages; null: `memory`
    Watch watch;
};

struct StepBuffers;

struct Model : Network {
    ModelIdentity identity;
    std::unique_ptr<Tokenizer> tokenizer; // null: there is none
    std::optional<ChatTemplate> chat;
    RecommendedSampling recommended;
    std::unique_ptr<PagePool> pool;
    std::unique_ptr<NodePool> log_nodes, table_nodes; // of TokenLog and PageTable
    std::atomic<uint64_t> held_bytes{0}; // KV bytes summed over sessions, shared ones repeatedly
    IdleList<StepBuffers> idle_steps;

    explicit Model(const ModelOptions &options);
    ~Model();
};

std::shared_ptr<Model> open_model(const std::string &path, const ModelOptions &options);

} // namespace stasis
