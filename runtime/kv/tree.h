// A sequence kept as an immutable, reference-counted tree of fan-out 32, shared between forks.
// Copying costs one count; changing a shared tree copies the path to the change. Used for the token
// log and the page tables. Nodes come from a pool that recycles them, so that decoding allocates no
// memory once the pool is warm. One writer per Tree; trees that share nodes may be used by
// different threads at the same time.
#pragma once

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

#include "runtime/kv/node_pool.h"

namespace stasis {

template <typename T> class Tree {
  public:
    static constexpr size_t kFan = 32;

    struct Node {
        std::atomic<uint32_t> references{1};
        union {
            Node *child[kFan];
            T item[kFan];
        };
        explicit Node(bool leaf) {
            if (leaf) {
                std::uninitialized_value_construct_n(item, kFan);
            } else {
                std::fill_n(child, kFan, nullptr);
            }
        }
        ~Node() {}
    };

    explicit Tree(NodePool &pool) : pool_(&pool) {}
    Tree(const Tree &other)
        : pool_(other.pool_), root_(other.root_), size_(other.size_), height_(other.height_) {
        retain(root_);
    }
    Tree(Tree &&other) noexcept
        : pool_(other.pool_), root_(std::exchange(other.root_, nullptr)),
          size_(std::exchange(other.size_, 0)), height_(std::exchange(other.height_, 0)) {}
    Tree &operator=(Tree other) noexcept {
        std::swap(pool_, other.pool_);
        std::swap(root_, other.root_);
        std::swap(size_, other.size_);
        std::swap(height_, other.height_);
        return *this;
    }
    ~Tree() { release(root_, height_); }

    // Returns the nodes of a tree of `size` items that shares none.
    static constexpr size_t nodes_of(size_t size) {
        size_t nodes = 0;
        for (size_t level = size; level != 0; level = level == 1 ? 0 : level) {
            level = (level + kFan - 1) / kFan;
            nodes += level;
        }
        return nodes;
    }

    size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }

    const T &operator[](size_t index) const {
        assert(index < size_);
        const Node *node = root_;
        for (unsigned level = height_; level > 0; --level) {
            node = node->child[digit(index, level)];
        }
        return node->item[digit(index, 0)];
    }

    // Returns the item, on a path that no other tree shares. Strong guarantee.
    T &mutate(size_t index) { return exclusive(index)->item[digit(index, 0)]; }

    void push_back(T value) {
        if (root_ != nullptr && size_ == capacity(height_)) {
            Node *root = create(false);
            root->child[0] = root_;
            root_ = root;
            ++height_;
        }
        exclusive(size_)->item[digit(size_, 0)] = std::move(value);
        ++size_;
    }

    // Drops the items from `size` on. Copies only nodes on the cut that are shared, so a tree that
    // was grown beyond `size` since it was last copied needs no memory. Strong guarantee.
    void truncate(size_t size) {
        if (size >= size_) {
            return;
        }
        if (size == 0) {
            release(std::exchange(root_, nullptr), std::exchange(height_, 0));
            size_ = 0;
            return;
        }
        // Makes the nodes on the cut exclusive. Only this can fail, so it comes before any change.
        Node **link = &root_;
        unsigned level = height_;
        for (;; --level) {
            make_exclusive(*link, level);
            if (level == 0 || (size & (capacity(level - 1) - 1)) == 0) {
                break;
            }
            link = &(*link)->child[digit(size, level)];
        }

        // Releases the items and subtrees after the cut.
        const unsigned lowest = level;
        Node *node = root_;
        for (level = height_;; --level) {
            const size_t kept = digit(size, level); // children, or items, that stay whole
            if (level == 0) {
                for (size_t i = kFan; i-- > kept;) {
                    node->item[i] = T();
                }
                break;
            }
            for (size_t i = kFan; i-- > kept + (level == lowest ? 0 : 1);) {
                release(std::exchange(node->child[i], nullptr), level - 1);
            }
            if (level == lowest) {
                break;
            }
            node = node->child[kept];
        }
        size_ = size;
    }

    // Reports whether another tree shares the path to the item.
    bool shared(size_t index) const {
        const Node *node = root_;
        for (unsigned level = height_;; --level) {
            if (node->references.load(std::memory_order_acquire) > 1) {
                return true;
            }
            if (level == 0) {
                return false;
            }
            node = node->child[digit(index, level)];
        }
    }

  private:
    static constexpr size_t capacity(unsigned height) { return size_t{1} << (5 * (height + 1)); }
    static constexpr size_t digit(size_t index, unsigned level) {
        return (index >> (5 * level)) & (kFan - 1);
    }

    Node *create(bool leaf) { return new (pool_->take()) Node(leaf); }

    static void retain(Node *node) {
        if (node != nullptr) {
            node->references.fetch_add(1, std::memory_order_relaxed);
        }
    }

    void release(Node *node, unsigned level) {
        if (node == nullptr || node->references.fetch_sub(1, std::memory_order_acq_rel) != 1) {
            return;
        }
        // Items are destroyed from the end, so that the last page of a path becomes idle first, and
        // is reclaimed first (prefixes.h).
        for (size_t i = kFan; i-- > 0;) {
            if (level == 0) {
                std::destroy_at(node->item + i);
            } else {
                release(node->child[i], level - 1);
            }
        }
        node->~Node();
        pool_->give_back(node);
    }

    Node *clone(const Node *node, unsigned level) {
        Node *copy = create(level == 0);
        for (size_t i = 0; i < kFan; ++i) {
            if (level == 0) {
                copy->item[i] = node->item[i];
            } else {
                copy->child[i] = node->child[i];
                retain(copy->child[i]);
            }
        }
        return copy;
    }

    // Replaces a shared node by a copy that this tree holds alone, and a missing one by an empty
    // one.
    void make_exclusive(Node *&node, unsigned level) {
        if (node == nullptr) {
            node = create(level == 0);
        } else if (node->references.load(std::memory_order_acquire) > 1) {
            Node *copy = clone(node, level);
            release(std::exchange(node, copy), level);
        }
    }

    // Returns the leaf of an index, and makes every node on the path exclusive to this tree.
    Node *exclusive(size_t index) {
        Node **link = &root_;
        for (unsigned level = height_;; --level) {
            make_exclusive(*link, level);
            if (level == 0) {
                return *link;
            }
            link = &(*link)->child[digit(index, level)];
        }
    }

    NodePool *pool_;
    Node *root_ = nullptr;
    size_t size_ = 0;
    unsigned height_ = 0; // levels above the leaves
};

} // namespace stasis
