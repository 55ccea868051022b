// Reading trees from the root down, and writing them from the leaves up; see node_io.h.
#include "format/node_io.h"

#include <cassert>

#include "format/state/error.h"

namespace stasis::format {

Bytes NodeReader::read_node(const char *tree, const NodeRef &ref) {
    // Frames are read once for each section of nodes.
    auto found = sections_.find(ref.section);
    if (found == sections_.end()) {
        const Frame frame = from_.read_frame(ref.section, SectionKind::nodes);
        if (frame.codec != Codec::raw) {
            fail(Status::corrupt, "section at byte %llu (nodes): codec %u, expected 0",
                 static_cast<Number>(ref.section), static_cast<uint32_t>(frame.codec));
        }
        found = sections_.emplace(ref.section, frame).first;
    }
    if (uint64_t{ref.begin} + ref.bytes > found->second.stored_bytes) {
        fail(Status::corrupt, "%s: node of %u bytes at byte %u of a section of %llu", tree,
             ref.bytes, ref.begin, static_cast<Number>(found->second.stored_bytes));
    }

    // See NodeReader: this bounds what a forged file makes a reader allocate.
    if (ref.bytes > left_) {
        fail(Status::corrupt, "%s: the nodes of the trees add up to more than the file", tree);
    }
    left_ -= ref.bytes;

    Bytes node(ref.bytes);
    from_.read(node.data(), node.size(), ref.section + kFrameBytes + ref.begin);
    const Digest digest = from_.digest(node);
    if (digest != ref.digest) {
        fail(Status::corrupt, "%s: node at byte %llu: SHA-256 is %s, expected %s", tree,
             static_cast<Number>(ref.section + kFrameBytes + ref.begin), to_hex(digest).c_str(),
             to_hex(ref.digest).c_str());
    }
    return node;
}

StoredTree NodeReader::read(const TreeShape &shape, const NodeRef &root, const Leaf &leaf) {
    StoredTree tree;
    const char *name = tree_name(shape.kind);
    if (shape.items == 0) {
        if (root != NodeRef{}) {
            fail(Status::corrupt, "%s: a root, but nothing in it", name);
        }
        return tree;
    }

    // Each level's nodes refer to those of the level below.
    const auto height = static_cast<uint32_t>(shape.level_nodes().size());
    tree.levels.resize(height);
    tree.levels[height - 1] = {root};
    for (uint32_t level = height; level-- > 0;) {
        for (uint64_t index = 0; index < tree.levels[level].size(); ++index) {
            const Bytes node = read_node(name, tree.levels[level][index]);
            check_node_header(node, shape, level, index);
            const uint32_t count = shape.node_count(level, index);
            if (level == 0) {
                leaf(node, count);
                continue;
            }
            const std::vector<NodeRef> children = parse_children(node, count);
            tree.levels[level - 1].insert(tree.levels[level - 1].end(), children.begin(),
                                          children.end());
        }
    }
    return tree;
}

// Returns the reference to a node: the old tree's if it has the node at this place, else to new
// bytes.
NodeRef NodeWriter::put(const Bytes &node, const StoredTree &old, uint32_t level, uint64_t index) {
    const Digest digest = Sha256().bytes(node.data(), node.size()).finish();
    if (level < old.levels.size() && index < old.levels[level].size()) {
        const NodeRef &there = old.levels[level][index];
        if (there.digest == digest && there.bytes == node.size()) {
            return there;
        }
    }
    if (pending_.size() + node.size() > kNodesBytesMax) {
        flush();
    }

    // The section of these nodes is appended by the next flush, so it begins at the output's next
    // byte.
    const NodeRef ref{output_.next(), static_cast<uint32_t>(pending_.size()),
                      static_cast<uint32_t>(node.size()), digest};
    pending_.insert(pending_.end(), node.begin(), node.end());
    return ref;
}

StoredTree NodeWriter::write(const TreeShape &shape, const StoredTree &old, uint64_t unchanged,
                             const Leaf &leaf) {
    assert(unchanged <= shape.items);
    StoredTree tree;
    const std::vector<uint64_t> nodes = shape.level_nodes();
    uint64_t span = shape.leaf_items(); // items below a full node
    for (uint32_t level = 0; level < nodes.size(); ++level, span *= kTreeFan) {
        std::vector<NodeRef> refs;
        for (uint64_t index = 0; index < nodes[level]; ++index) {
            if (index < unchanged / span) { // the old node is full too and has the same items
                refs.push_back(old.levels[level][index]);
                continue;
            }
            refs.push_back(put(make(shape, level, index, tree, leaf), old, level, index));
        }
        tree.levels.push_back(std::move(refs));
    }
    return tree;
}

StoredTree NodeWriter::write_full(const TreeShape &shape, const Leaf &leaf) {
    StoredTree tree;
    uint64_t span = shape.leaf_items();
    for (uint32_t level = 0; shape.items >= span; ++level, span *= kTreeFan) {
        std::vector<NodeRef> refs;
        for (uint64_t index = 0; index < shape.items / span; ++index) {
            refs.push_back(put(make(shape, level, index, tree, leaf), {}, level, index));
        }
        tree.levels.push_back(std::move(refs));
    }
    return tree;
}

// A node's bytes; the levels below it are there.
Bytes NodeWriter::make(const TreeShape &shape, uint32_t level, uint64_t index,
                       const StoredTree &below, const Leaf &leaf) const {
    Bytes node = node_header(shape, level, index);
    const uint64_t begin = index * (level == 0 ? shape.leaf_items() : kTreeFan);
    const uint32_t count = shape.node_count(level, index);
    if (level == 0) {
        leaf(node, begin, begin + count);
    } else {
        add_children(node, std::span(below.levels[level - 1]).subspan(begin, count));
    }
    return node;
}

void NodeWriter::flush() {
    if (!pending_.empty()) {
        output_.append(SectionKind::nodes, pending_.data(), pending_.size());
        pending_.clear();
    }
}

} // namespace stasis::format
