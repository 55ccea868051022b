// The states of recurrent layers that a timeline holds: that after the last position, and
// checkpoints at earlier ones, from which a rewind computes the state of any position again. A
// value: a copy costs reference counts. Which checkpoints are kept follows from the end of the log
// (keeps_checkpoint), and from the budget of the pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/kv/state_pool.h"

namespace stasis {

class PagePool;

inline constexpr uint64_t kCheckpointPositions = 256; // between checkpoints near the end
inline constexpr uint64_t kCheckpointNear = 4096;     // positions from the end that are near

// Reports whether a log that ends at `end` keeps a checkpoint at an earlier position: near the end
// all multiples of kCheckpointPositions; before that, at twice the distance half as many. What a
// log keeps, each of its beginnings that reaches so far has kept.
bool keeps_checkpoint(uint64_t position, uint64_t end);
// Returns the first checkpoint after `begin`, and the last up to `end`.
inline uint64_t next_checkpoint(uint64_t begin) {
    return (begin / kCheckpointPositions + 1) * kCheckpointPositions;
}
inline uint64_t last_checkpoint(uint64_t end) {
    return end / kCheckpointPositions * kCheckpointPositions;
}

class RecurrentStates {
  public:
    struct Checkpoint {
        uint64_t position; // positions computed; never 0, where all states are zero
        StateRef state;
    };

    explicit RecurrentStates(StatePool &pool) : pool_(&pool) {}

    // Reports whether the model has recurrent layers. If not, no other function is called but
    // `holds`, `cut` and `thin`.
    bool used() const { return pool_->numbers() != 0; }
    std::span<const Checkpoint> all() const { return states_; }
    // Reports whether the state of a log that ends there is held.
    bool holds(uint64_t end) const {
        return !used() || end == 0 || (!states_.empty() && states_.back().position == end);
    }
    // Returns the highest position whose state is held, `most` at most.
    uint64_t nearest(uint64_t most) const;
    // Returns the state at a position; none: it is not held, or 0.
    StateRef at(uint64_t position) const;

    // Takes memory for the next state. As long as this exceeds the budget, first the oldest states
    // that only the prefix cache of `pages` holds go, then checkpoints that nobody else holds, but
    // neither the last nor that at `start`. Throws Error(no_memory).
    StateRef take(uint64_t start, PagePool &pages);
    // The same for a checkpoint; none if it would exceed the budget.
    StateRef take_spare(uint64_t start, PagePool &pages);
    // Makes room, so that the next `add` cannot fail.
    void reserve() { states_.reserve(states_.size() + 1); }
    // Adds the state at a position after all others. The last one until now stays if it is a
    // checkpoint or at `start`. Strong guarantee.
    void add(uint64_t position, StateRef state, uint64_t start);
    // Drops the states after a position.
    void cut(uint64_t position) noexcept;
    // Drops what a log that ends at `end` does not keep.
    void thin(uint64_t end) noexcept;

  private:
    bool give_up_one(uint64_t start, PagePool &pages) noexcept;
    bool drop_one(uint64_t start) noexcept;

    StatePool *pool_;
    std::vector<Checkpoint> states_; // ascending
};

} // namespace stasis
