// The states of recurrent layers, each all layers' at one position: blocks of equal size, counted
// by reference, with a budget that their holders keep to. A state is written once, before anyone
// else holds it. Knows neither positions nor who holds what.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

#include "format/state/digest.h"
#include "runtime/host/memory.h"

namespace stasis {

class StatePool;

// The memory of one state.
struct StateBlock {
    std::atomic<uint32_t> references{1};
    StatePool *pool = nullptr;
    StateBlock *next_free = nullptr;
    float *numbers = nullptr;
    Digest digest = {};
    bool digested = false; // under the pool's lock, as the digest
};

// Counted pointer to a state.
class StateRef {
  public:
    StateRef() = default;
    explicit StateRef(StateBlock *block) : block_(block) {} // takes over one reference
    StateRef(const StateRef &other) : block_(other.block_) {
        if (block_ != nullptr) {
            block_->references.fetch_add(1, std::memory_order_relaxed);
        }
    }
    StateRef(StateRef &&other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
    StateRef &operator=(StateRef other) noexcept {
        std::swap(block_, other.block_);
        return *this;
    }
    ~StateRef();
    explicit operator bool() const { return block_ != nullptr; }
    const float *numbers() const { return block_ != nullptr ? block_->numbers : nullptr; }
    // For whoever took it from the pool, before it is shared.
    float *writable() { return block_->numbers; }
    // Returns the digest of the state, which is that after `position` tokens. Computed once.
    Digest digest(uint64_t position) const;
    bool unique() const { return block_->references.load(std::memory_order_acquire) == 1; }

  private:
    StateBlock *block_ = nullptr;
};

// Thread-safe.
class StatePool {
  public:
    // `numbers` is the size of a state; 0: the model has none, and nothing is taken.
    StatePool(const Memory &memory, size_t numbers, uint64_t budget_bytes);
    ~StatePool();
    StatePool(const StatePool &) = delete;
    StatePool &operator=(const StatePool &) = delete;

    // Returns a state, contents not set, whatever the budget is: a session cannot do without its
    // last state and the next. Throws Error(no_memory).
    StateRef take();
    // Reports whether one more state would exceed the budget: holders then drop states that can be
    // computed again.
    bool full() const;

    size_t numbers() const { return numbers_; }
    uint64_t bytes() const { return numbers_ * sizeof(float); } // of one state
    uint64_t budget_bytes() const { return budget_bytes_; }
    uint64_t used_bytes() const; // of states that are held
    uint64_t free_bytes() const; // of memory kept for the next ones

  private:
    friend class StateRef;
    void let_go(StateBlock *block) noexcept;
    void give_back(StateBlock *block) noexcept;

    const Memory &memory_;
    const size_t numbers_;
    const uint64_t budget_bytes_;
    mutable std::mutex mutex_;
    StateBlock *free_ = nullptr;   // list head
    uint64_t used_ = 0, idle_ = 0; // states held, and in the list
};

} // namespace stasis
