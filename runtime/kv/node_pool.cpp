// See node_pool.h.
#include "runtime/kv/node_pool.h"

#include <new>

namespace stasis {

NodePool::~NodePool() {
    while (free_ != nullptr) {
        Free *next = free_->next;
        memory_.give_back(free_, node_bytes_);
        free_ = next;
    }
}

void *NodePool::take() {
    {
        std::lock_guard lock(mutex_);
        if (free_ != nullptr) {
            Free *node = free_;
            free_ = node->next;
            return node;
        }
    }
    return memory_.take(node_bytes_);
}

void NodePool::give_back(void *node) {
    std::lock_guard lock(mutex_);
    free_ = new (node) Free{free_};
}

} // namespace stasis
