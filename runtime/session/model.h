// A model as a host opens it: the network with its tokenizer and chat template. Immutable after
// opening, except members that lock themselves.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>

#include "format/state/state.h"
#include "format/state/watch.h"
#include "runtime/compute/network.h"
#include "runtime/host/idle_list.h"
#include "runtime/kernels/device.h"
#include "runtime/kv/page_pool.h"
#include "runtime/model/embedding_rules.h"
#include "runtime/model/metadata.h"
#include "runtime/sampling/recommended.h"
#include "runtime/session/constrained.h"
#include "runtime/text/chat.h"
#include "runtime/text/tokenizer.h"

namespace stasis {

struct ModelOptions {
    size_t threads = 0;                   // 0: one per available core
    std::shared_ptr<Threads> thread_pool; // that models share; null: the model has its own
    std::string device = "cpu";
    // Replaces the device's installed module; null: that module is used.
    const kernels::DeviceTable *device_module = nullptr;
    std::string profile;          // "": the contract; "device": the device's profile, if it has one
    std::string kernels;          // "": best
    uint64_t kv_budget_bytes = 0; // 0: no limit
    uint64_t state_budget_bytes = 512U << 20; // of recurrent layers' states
    std::string chat_template;                // "": recognised
    std::optional<std::time_t> date;          // for chat templates that print it
    bool copy_weights = false;                // true: nothing is mapped
    bool verify_weights = false;              // true: hash them, whatever is known of them
    Memory memory;
    const PageMemory *page_memory = nullptr; // memory of KV pages; null: `memory`
    Watch watch;
};

struct StepBuffers;

struct Model : Network {
    ModelIdentity identity;
    ModelIdentity short_identity; // of sessions with the short factors, if there is long RoPE
    std::unique_ptr<Tokenizer> tokenizer; // null: the model has none
    std::optional<ChatTemplate> chat;
    RecommendedSampling recommended;
    EmbeddingRules embedding;
    Metadata metadata;
    std::unique_ptr<Network> mtp; // of the MTP head; null: there is none
    IdleList<StepBuffers> idle_steps;
    Constraints constraints;

    explicit Model(const ModelOptions &options);
    ~Model();

    // Returns the identity of a session on one side of long RoPE. Elsewhere there is one side.
    const ModelIdentity &identity_of(bool long_rope) const {
        return long_rope || config.long_rope_from() == 0 ? identity : short_identity;
    }
};

// Throws Error(unsupported) for a model that only makes embeddings.
void require_sessions(const Model &model);

std::shared_ptr<Model> open_model(const std::string &path, const ModelOptions &options);
// Opens a GGUF file that is open for reading, which the caller keeps.
std::shared_ptr<Model> open_model(int descriptor, const ModelOptions &options);
// Opens a model whose files a host gives, all by the calling thread and before this returns: the
// GGUF file `name`, or for "" those of a directory.
std::shared_ptr<Model> open_model(const HostFiles &host, const std::string &name,
                                  const ModelOptions &options);

} // namespace stasis
