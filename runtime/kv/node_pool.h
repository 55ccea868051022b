// Memory for the nodes of trees (tree.h). Knows nothing of their contents.
#pragma once

#include <cstddef>
#include <mutex>

#include "runtime/host/memory.h"

namespace stasis {

// Pieces of one size, with a free list. Thread-safe.
class NodePool {
  public:
    NodePool(const Memory &memory, size_t node_bytes) : memory_(memory), node_bytes_(node_bytes) {}
    ~NodePool();
    NodePool(const NodePool &) = delete;
    NodePool &operator=(const NodePool &) = delete;

    void *take(); // throws Error(no_memory)
    void give_back(void *node);
    size_t node_bytes() const { return node_bytes_; }

  private:
    struct Free {
        Free *next;
    };
    const Memory &memory_;
    const size_t node_bytes_;
    std::mutex mutex_;
    Free *free_ = nullptr;
};

} // namespace stasis
