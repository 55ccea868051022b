// The contents of the opaque handles. Names runtime and format types without including them, so
// that each file of the shim includes no more than it needs.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "abi/gate.h"
#include "abi/stasis.h"
#include "format/state/digest.h"

namespace stasis {
struct Model;
class Session;
class Threads;
namespace abi {
class Caller;
class HostTrace;
class Scheduler;
} // namespace abi
namespace format {
class Snapshot;
class Store;
struct Contents;
} // namespace format
} // namespace stasis

struct stasis_threads {
    std::shared_ptr<stasis::Threads> threads; // models hold the same pointer
};

// Thread-safe: nothing in it changes after open.
struct stasis_model {
    // Sessions hold the same pointer. It also owns the memory that stasis_model_info points into.
    std::shared_ptr<stasis::Model> model;
    const uint32_t *layer_windows = nullptr, *layer_keys = nullptr;
    const uint32_t *bias_tokens = nullptr; // of the recommended settings, and their biases
    const float *bias = nullptr;
    const uint8_t *layer_recurrent = nullptr;
    const stasis_digest *attention = nullptr, *mlp = nullptr;
    const char *const *prompt_names = nullptr, *const *prompts = nullptr; // of embeddings
};

struct stasis_store {
    std::string name; // the same for the same place, whichever handle it was opened as
    std::shared_ptr<const stasis::format::Store> store;
};

// What a session knows of a stored one that it was put to or got from.
struct StoredAs {
    std::string store, name;
    std::optional<stasis::Digest> mark;      // nothing: none yet
    std::optional<stasis::Digest> attempted; // of a put whose answer may have been lost
    bool repair = false;                     // some of it is lost: the next put writes all of it
    // The same as `saved` of a session; null but in the last of them.
    std::shared_ptr<const stasis::format::Contents> contents;
};

struct stasis_session {
    explicit stasis_session(std::unique_ptr<stasis::Session> given,
                            std::shared_ptr<const stasis::format::Contents> from = nullptr);
    ~stasis_session();

    const std::unique_ptr<stasis::Session> session;
    // Contents of the file that this session, or the one it was forked from, last loaded from or
    // saved to: the next commit to that file need not read it. Null: none yet.
    std::shared_ptr<const stasis::format::Contents> saved;
    std::vector<StoredAs> stored; // each store and name once
    bool older = false;           // `saved` is the state before the last commit, which is damaged
    mutable stasis::abi::Gate gate;
    mutable const stasis::abi::Caller *caller = nullptr; // of the running call (abi/trace.h)
    std::unique_ptr<stasis::abi::HostTrace> trace;       // null: none
    mutable stasis_generation *generation = nullptr;     // open, see abi/generation.h; null: none
    std::weak_ptr<stasis::abi::Scheduler> scheduler;     // that it was submitted to last
};

struct stasis_snapshot {
    std::shared_ptr<const stasis::format::Snapshot> snapshot;
    mutable std::atomic<bool> busy{false};
};
