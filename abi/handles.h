// What the opaque handles hold. Runtime and format types are named only, so that each file of the
// shim includes no more than it needs.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "abi/stasis.h"

namespace stasis {
struct Model;
class Session;
namespace abi {
class Caller;
class HostTrace;
} // namespace abi
namespace format {
class Snapshot;
struct Contents;
} // namespace format
} // namespace stasis

// Shared by all threads: nothing in it changes after open.
struct stasis_model {
    // Sessions hold the same pointer; it also owns what stasis_model_info points into.
    std::shared_ptr<stasis::Model> model;
    const uint32_t *layer_windows = nullptr;
    const stasis_digest *attention = nullptr, *mlp = nullptr;
};

struct stasis_session {
    explicit stasis_session(std::unique_ptr<stasis::Session> given,
                            std::shared_ptr<const stasis::format::Contents> from = nullptr);
    ~stasis_session();

    const std::unique_ptr<stasis::Session> session;
    // Of the file that it, or the session it was forked from, was last loaded from or saved to, so
    // that the next commit to it need not read it; null: none yet.
    std::shared_ptr<const stasis::format::Contents> saved;
    bool older = false; // that is a state before the last one of its file, which is damaged
    mutable std::atomic<bool> busy{false};
    mutable const stasis::abi::Caller *caller = nullptr; // of the call that holds it (abi/trace.h)
    std::unique_ptr<stasis::abi::HostTrace> trace;       // null: none
};

struct stasis_snapshot {
    std::shared_ptr<const stasis::format::Snapshot> snapshot;
    mutable std::atomic<bool> busy{false};
};
