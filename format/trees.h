// Trees in files: all nodes of one read and checked, and one written of which the file may hold
// parts already. Knows what nodes are (nodes.h), not what their items mean.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "format/input.h"
#include "format/nodes.h"
#include "format/output.h"

namespace stasis::format {

// Reads nodes of one state. Together they are never larger than the state: an honest file refers to
// no node twice, so that what its trees unfold to is bounded by its size.
class NodeReader {
  public:
    explicit NodeReader(const Committed &from) : from_(from), left_(from.end) {}

    // Calls `leaf` for the leaves of a tree in order, each with its number of items. Checks sizes,
    // digests and headers of all nodes. Error(corrupt).
    using Leaf = std::function<void(std::span<const uint8_t> node, uint32_t count)>;
    Tree read(const TreeShape &shape, const NodeRef &root, const Leaf &leaf);
    // Offsets and frames of the sections that held nodes.
    const std::map<uint64_t, Frame> &sections() const { return sections_; }

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

    // The tree of a list. `leaf` appends the items [begin, end) to a node. A node that `old` has at
    // the same place, with the same bytes, is used again.
    using Leaf = std::function<void(Bytes &node, uint64_t begin, uint64_t end)>;
    Tree write(const TreeShape &shape, const Tree &old, const Leaf &leaf);
    void flush(); // after the last tree

  private:
    NodeRef put(const Bytes &node, const Tree &old, uint32_t level, uint64_t index);

    Output &output_;
    Bytes pending_;
};

} // namespace stasis::format
