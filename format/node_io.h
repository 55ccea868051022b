// Trees in files: reads and checks all nodes of a tree, and writes a tree of which the file may
// hold parts already. Knows nodes (tree.h); must not know what their items mean.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>

#include "format/input.h"
#include "format/output.h"
#include "format/tree.h"

namespace stasis::format {

// Reads the nodes of one state. Their sizes together must not exceed the state's: a file that was
// written by a save refers to no node twice, so this bounds the memory that a forged file can use.
class NodeReader {
  public:
    explicit NodeReader(const Committed &from) : from_(from), left_(from.end) {}

    // Calls `leaf` for the leaves of a tree in order, each with its number of items. Checks sizes,
    // digests and headers of all nodes. Throws Error(corrupt).
    using Leaf = std::function<void(std::span<const uint8_t> node, uint32_t count)>;
    StoredTree read(const TreeShape &shape, const NodeRef &root, const Leaf &leaf);

  private:
    Bytes read_node(const char *tree, const NodeRef &ref);

    const Committed from_;
    uint64_t left_;
    std::map<uint64_t, Frame> sections_;
};

// Collects the new nodes of a commit and appends them as sections.
class NodeWriter {
  public:
    explicit NodeWriter(Output &output) : output_(output) {}

    // Writes the tree of a list; `add` appends items to a leaf. `old` is the tree of `old_items` in
    // the file: a node that it has at the same place, with the same bytes, is used again.
    template <typename Item>
    StoredTree write(TreeKind kind, uint32_t group, const std::vector<Item> &items,
                     const StoredTree &old, std::span<const Item> old_items,
                     void (*add)(Bytes &, std::span<const Item>)) {
        const auto same =
            std::mismatch(items.begin(), items.end(), old_items.begin(), old_items.end());
        return write({kind, group, items.size()}, old,
                     static_cast<uint64_t>(same.first - items.begin()),
                     [&](Bytes &node, uint64_t begin, uint64_t end) {
                         add(node, std::span(items).subspan(begin, end - begin));
                     });
    }
    // Writes the nodes that each list has which begins with these items and goes on. With them as
    // `old`, and with `full_items` of the items, `write` writes the rest of such a list.
    template <typename Item>
    StoredTree write_full(TreeKind kind, uint32_t group, std::span<const Item> items,
                          void (*add)(Bytes &, std::span<const Item>)) {
        return write_full({kind, group, items.size()},
                          [&](Bytes &node, uint64_t begin, uint64_t end) {
                              add(node, items.subspan(begin, end - begin));
                          });
    }
    void flush(); // after the last tree

  private:
    // `leaf` appends the items [begin, end) to a node; the first `unchanged` items are those of
    // `old`.
    using Leaf = std::function<void(Bytes &node, uint64_t begin, uint64_t end)>;
    StoredTree write(const TreeShape &shape, const StoredTree &old, uint64_t unchanged,
                     const Leaf &leaf);
    StoredTree write_full(const TreeShape &shape, const Leaf &leaf);
    Bytes make(const TreeShape &shape, uint32_t level, uint64_t index, const StoredTree &below,
               const Leaf &leaf) const;
    NodeRef put(const Bytes &node, const StoredTree &old, uint32_t level, uint64_t index);

    Output &output_;
    Bytes pending_;
};

} // namespace stasis::format
