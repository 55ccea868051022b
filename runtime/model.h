// A model: weights, tokenizer, template, kernels, threads and the KV pool, immutable after opening
// apart from the pool and the free list of work spaces, which lock themselves.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "format/state.h"
#include "format/watch.h"
#include "runtime/chat.h"
#include "runtime/config.h"
#include "runtime/kernels/table.h"
#include "runtime/kv.h"
#include "runtime/memory.h"
#include "runtime/threads.h"
#include "runtime/tokenizer.h"
#include "runtime/weights.h"

namespace stasis {

struct ModelOptions {
    size_t threads = 0; // 0: one per available core
    std::string device = "cpu";
    std::string kernels;          // "": best
    uint64_t kv_budget_bytes = 0; // 0: no limit
    std::string chat_template;    // "": recognised
    Memory memory;
    Watch watch;
};

struct Workspace;

struct Model {
    Memory memory;
    Config config;
    ModelIdentity identity;
    std::vector<LayerGroup> groups;
    std::vector<std::pair<uint32_t, uint32_t>> layer_group; // [layer] group, index in the group
    const kernels::Table *kernels = nullptr;
    std::unique_ptr<Threads> threads;
    Weights weights;
    std::unique_ptr<Tokenizer> tokenizer;
    std::optional<ChatTemplate> chat;
    std::unique_ptr<PagePool> pool;

    Model();
    ~Model();

    // Work spaces of forward passes, reused from call to call.
    std::unique_ptr<Workspace> take_workspace();
    void give_back(std::unique_ptr<Workspace> workspace);
    uint64_t scratch_bytes() const;

  private:
    mutable std::mutex mutex_;
    std::vector<std::unique_ptr<Workspace>> workspaces_;
    uint64_t scratch_bytes_ = 0;
};

std::shared_ptr<Model> open_model(const std::string &directory, const ModelOptions &options);

} // namespace stasis
