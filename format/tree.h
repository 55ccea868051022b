// The immutable trees of a snapshot: token log, token texts, page tables and settings. Each is a
// list, cut into leaves under inner nodes of up to 32 children; its length determines its shape
// (FORMAT.md, "Trees"). Converts nodes to bytes and back. Knows the places of nodes only as
// references.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "format/constants.h"
#include "format/layout.h"
#include "format/state/state.h"

namespace stasis::format {

enum class TreeKind : uint32_t { log = 1, texts = 2, pages = 3, settings = 4 };
const char *tree_name(TreeKind kind);

// Identifies a tree and the number of items that its leaves hold together.
struct TreeShape {
    TreeKind kind = TreeKind::log;
    uint32_t group = 0; // of a page table
    uint64_t items = 0;

    uint32_t leaf_items() const;
    std::vector<uint64_t> level_nodes() const; // nodes of each level, leaves first; none if empty
    // Returns the number of items of a leaf, or of children of an inner node.
    uint32_t node_count(uint32_t level, uint64_t index) const;
};

// References to all nodes of a tree.
struct StoredTree {
    std::vector<std::vector<NodeRef>> levels; // leaves first; the last has one node, the root
    NodeRef root() const { return levels.empty() ? NodeRef{} : levels.back()[0]; }
    bool operator==(const StoredTree &) const = default;
};

using Bytes = std::vector<uint8_t>;
using TokenText = std::pair<uint32_t, std::string>;

inline constexpr size_t kNodeHeaderBytes = 16;
// Returns the bytes that identify a node: kind, group, level and number of items, u32 each.
Bytes node_header(const TreeShape &shape, uint32_t level, uint64_t index);
// Throws Error(corrupt) unless the node begins with exactly this header.
void check_node_header(std::span<const uint8_t> node, const TreeShape &shape, uint32_t level,
                       uint64_t index);

// Conversion of the items after the header: add_ appends them to a node, parse_ reads `count` of
// them from one. parse_ throws Error(corrupt) unless the items end with the node.
void add_children(Bytes &node, std::span<const NodeRef> children);
std::vector<NodeRef> parse_children(std::span<const uint8_t> node, uint32_t count);
void add_entries(Bytes &node, std::span<const TokenEntry> entries);
void parse_entries(std::span<const uint8_t> node, uint32_t count, std::vector<TokenEntry> &entries);
void add_texts(Bytes &node, std::span<const TokenText> texts);
void parse_texts(std::span<const uint8_t> node, uint32_t count, std::vector<TokenText> &texts);
void add_pages(Bytes &node, std::span<const PageRecord> pages);
void parse_pages(std::span<const uint8_t> node, uint32_t count, std::vector<PageRecord> &pages);
void add_settings(Bytes &node, std::span<const SettingRecord> settings);
void parse_settings(std::span<const uint8_t> node, uint32_t count,
                    std::vector<SettingRecord> &settings);

} // namespace stasis::format
