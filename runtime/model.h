// A model: weights, tokenizer, template, kernels, threads and the KV pool, immutable after opening
// apart from the pool and the free list of work spaces, which lock themselves.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "format/state.h"
#include "format/watch.h"
#include "runtime/checkpoint/config.h"
#include "runtime/checkpoint/weights.h"
#include "runtime/kernels/device.h"
#include "runtime/kernels/table.h"
#include "runtime/kv.h"
#include "runtime/memory.h"
#include "runtime/recommended.h"
#include "runtime/text/chat.h"
#include "runtime/text/tokenizer.h"
#include "runtime/threads.h"

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
    Memory memory;
    const PageMemory *page_memory = nullptr; // of KV pages; null: `memory`
    Watch watch;
};

class DeviceModel;
struct Workspace;
struct StepBuffers;

// Where a layer's keys and values lie: its group, and its place among the group's layers.
struct LayerPlace {
    uint32_t group = 0, index = 0;
};

struct Model {
    Memory memory; // first: what lies below gives memory back to it
    Config config;
    ModelIdentity identity;
    std::vector<LayerGroup> groups;
    std::vector<LayerPlace> layer_places;              // [layer]
    std::vector<std::vector<double>> rope_frequencies; // [rope][head_dim / 2]
    const kernels::Table *kernels = nullptr;
    std::unique_ptr<Threads> threads;
    Weights weights;
    std::unique_ptr<Tokenizer> tokenizer;
    std::optional<ChatTemplate> chat;
    RecommendedSampling recommended;
    std::unique_ptr<DeviceModel> device; // null: the CPU
    std::string profile;                 // id of the device profile; "": the contract alone
    std::unique_ptr<PagePool> pool;
    std::unique_ptr<NodePool> log_nodes, table_nodes; // of TokenLog and PageTable
    std::atomic<uint64_t> held_bytes{0}; // KV bytes summed over sessions, shared ones repeatedly

    explicit Model(const ModelOptions &options);
    ~Model();
    Model(const Model &) = delete;
    Model &operator=(const Model &) = delete;

    uint64_t scratch_bytes() const;

  private:
    friend class WorkspaceLease;
    friend class StepLease;
    mutable std::mutex mutex_;
    std::vector<std::unique_ptr<Workspace>> idle_;
    std::vector<std::unique_ptr<StepBuffers>> idle_steps_;
    uint64_t scratch_bytes_ = 0; // of idle work spaces
};

// A work space for the length of one call; idle ones are reused.
class WorkspaceLease {
  public:
    explicit WorkspaceLease(Model &model);
    ~WorkspaceLease();
    WorkspaceLease(const WorkspaceLease &) = delete;
    WorkspaceLease &operator=(const WorkspaceLease &) = delete;
    Workspace &operator*() const { return *workspace_; }
    Workspace *operator->() const { return workspace_.get(); }

  private:
    Model &model_;
    std::unique_ptr<Workspace> workspace_;
};

std::shared_ptr<Model> open_model(const std::string &path, const ModelOptions &options);

} // namespace stasis
