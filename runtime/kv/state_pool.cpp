// Takes, counts and reuses states of recurrent layers; see state_pool.h.
#include "runtime/kv/state_pool.h"

#include <cassert>
#include <memory>
#include <new>

namespace stasis {

StateRef::~StateRef() {
    if (block_ != nullptr && block_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        block_->pool->let_go(block_);
    }
}

Digest StateRef::digest(uint64_t position) const {
    const StatePool &pool = *block_->pool;
    {
        const std::lock_guard lock(pool.mutex_);
        if (block_->digested) {
            return block_->digest;
        }
    }
    const Digest digest = recurrent_state_digest(position, block_->numbers, pool.numbers());
    const std::lock_guard lock(pool.mutex_);
    block_->digest = digest; // the same whoever computes it
    block_->digested = true;
    return digest;
}

StatePool::StatePool(const Memory &memory, size_t numbers, uint64_t budget_bytes)
    : memory_(memory), numbers_(numbers), budget_bytes_(budget_bytes) {}

StatePool::~StatePool() {
    assert(used_ == 0);
    while (free_ != nullptr) {
        give_back(std::exchange(free_, free_->next_free));
    }
}

void StatePool::give_back(StateBlock *block) noexcept {
    memory_.give_back(block->numbers, bytes());
    delete block;
}

StateRef StatePool::take() {
    assert(numbers_ != 0);
    {
        const std::lock_guard lock(mutex_);
        if (free_ != nullptr) {
            StateBlock *block = std::exchange(free_, free_->next_free);
            --idle_;
            ++used_;
            block->references.store(1, std::memory_order_relaxed);
            block->digested = false;
            return StateRef(block);
        }
    }
    std::unique_ptr<StateBlock> block(new (std::nothrow) StateBlock);
    if (block == nullptr) { // as Memory does: callers that can give memory back catch Error
        fail(Status::no_memory, "no memory for %zu bytes", sizeof(StateBlock));
    }
    block->pool = this;
    block->numbers = static_cast<float *>(memory_.take(bytes()));
    const std::lock_guard lock(mutex_);
    ++used_;
    return StateRef(block.release());
}

// Keeps memory as long as it is within the budget, or there is no more than one free state for each
// that is held: a session that decodes takes one for every token, and allocates nothing.
void StatePool::let_go(StateBlock *block) noexcept {
    StateBlock *surplus = nullptr; // list head; given back after the lock is released
    {
        const std::lock_guard lock(mutex_);
        --used_;
        block->next_free = std::exchange(free_, block);
        ++idle_;
        while (idle_ > used_ && (used_ + idle_) * bytes() > budget_bytes_) {
            StateBlock *last = std::exchange(free_, free_->next_free);
            last->next_free = std::exchange(surplus, last);
            --idle_;
        }
    }
    while (surplus != nullptr) {
        give_back(std::exchange(surplus, surplus->next_free));
    }
}

bool StatePool::full() const {
    const std::lock_guard lock(mutex_);
    return (used_ + 1) * bytes() > budget_bytes_;
}

uint64_t StatePool::used_bytes() const {
    const std::lock_guard lock(mutex_);
    return used_ * bytes();
}

uint64_t StatePool::free_bytes() const {
    const std::lock_guard lock(mutex_);
    return idle_ * bytes();
}

} // namespace stasis
