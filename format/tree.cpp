// Shapes of trees, and conversion of nodes to bytes and back; see tree.h.
#include "format/tree.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "format/state/error.h"

namespace stasis::format {

namespace {

uint64_t divided_up(uint64_t a, uint64_t b) {
    return a / b + (a % b != 0 ? 1 : 0);
}

template <class T> void add(Bytes &node, const T *values, size_t count) {
    const auto *from = reinterpret_cast<const uint8_t *>(values);
    node.insert(node.end(), from, from + count * sizeof(T));
}

// Reads the items of a node one after the other. Throws Error(corrupt) if they do not end with it.
struct Cursor {
    std::span<const uint8_t> left; // of the node

    explicit Cursor(std::span<const uint8_t> node) : left(node.subspan(kNodeHeaderBytes)) {}

    std::span<const uint8_t> take(uint64_t count, size_t item_bytes) {
        if (count > left.size() / item_bytes) {
            fail(Status::corrupt, "node: %llu items of %zu bytes, but %zu bytes are left of it",
                 static_cast<Number>(count), item_bytes, left.size());
        }
        const std::span<const uint8_t> taken = left.first(count * item_bytes);
        left = left.subspan(count * item_bytes);
        return taken;
    }
    template <class T> void copy(T *to, uint64_t count) {
        const std::span<const uint8_t> from = take(count, sizeof(T));
        std::copy(from.begin(), from.end(), reinterpret_cast<uint8_t *>(to));
    }
    void finish() const {
        if (!left.empty()) {
            fail(Status::corrupt, "node: %zu bytes behind its items", left.size());
        }
    }
};

} // namespace

const char *tree_name(TreeKind kind) {
    return kind == TreeKind::log        ? "token log"
           : kind == TreeKind::texts    ? "token texts"
           : kind == TreeKind::settings ? "sampling settings"
                                        : "page table";
}

uint32_t TreeShape::leaf_items() const {
    return kind == TreeKind::log        ? kLogLeaf
           : kind == TreeKind::texts    ? kTextsLeaf
           : kind == TreeKind::settings ? kSettingsLeaf
                                        : kPagesLeaf;
}

std::vector<uint64_t> TreeShape::level_nodes() const {
    std::vector<uint64_t> nodes;
    if (items > 0) {
        nodes.push_back(divided_up(items, leaf_items()));
        while (nodes.back() > 1) {
            nodes.push_back(divided_up(nodes.back(), kTreeFan));
        }
    }
    return nodes;
}

uint32_t TreeShape::node_count(uint32_t level, uint64_t index) const {
    const uint32_t fan = level == 0 ? leaf_items() : kTreeFan;
    const uint64_t below = level == 0 ? items : level_nodes()[level - 1];
    assert(index * fan < below);
    return static_cast<uint32_t>(std::min<uint64_t>(fan, below - index * fan));
}

Bytes node_header(const TreeShape &shape, uint32_t level, uint64_t index) {
    const uint32_t fields[4] = {static_cast<uint32_t>(shape.kind), shape.group, level,
                                shape.node_count(level, index)};
    Bytes node;
    add(node, fields, 4);
    return node;
}

void check_node_header(std::span<const uint8_t> node, const TreeShape &shape, uint32_t level,
                       uint64_t index) {
    const Bytes expected = node_header(shape, level, index);
    uint32_t found[4] = {};
    if (node.size() >= kNodeHeaderBytes) {
        std::memcpy(found, node.data(), kNodeHeaderBytes);
    }
    if (std::memcmp(found, expected.data(), kNodeHeaderBytes) != 0) {
        fail(Status::corrupt,
             "%s, node %llu of level %u: it says tree %u, group %u, level %u, %u items, expected "
             "%u, %u, %u, %u",
             tree_name(shape.kind), static_cast<Number>(index), level, found[0], found[1], found[2],
             found[3], static_cast<uint32_t>(shape.kind), shape.group, level,
             shape.node_count(level, index));
    }
}

void add_children(Bytes &node, std::span<const NodeRef> children) {
    add(node, children.data(), children.size());
}

std::vector<NodeRef> parse_children(std::span<const uint8_t> node, uint32_t count) {
    Cursor cursor(node);
    std::vector<NodeRef> children(count); // at most kTreeFan
    cursor.copy(children.data(), count);
    cursor.finish();
    return children;
}

void add_entries(Bytes &node, std::span<const TokenEntry> entries) {
    add(node, entries.data(), entries.size());
}

void parse_entries(std::span<const uint8_t> node, uint32_t count,
                   std::vector<TokenEntry> &entries) {
    Cursor cursor(node);
    entries.resize(entries.size() + count);
    cursor.copy(entries.data() + entries.size() - count, count);
    cursor.finish();
}

void add_texts(Bytes &node, std::span<const TokenText> texts) {
    for (const auto &[token, text] : texts) {
        const uint32_t head[2] = {token, static_cast<uint32_t>(text.size())};
        add(node, head, 2);
        add(node, text.data(), text.size());
    }
}

void parse_texts(std::span<const uint8_t> node, uint32_t count, std::vector<TokenText> &texts) {
    Cursor cursor(node);
    for (uint32_t i = 0; i < count; ++i) {
        uint32_t head[2];
        cursor.copy(head, 2);
        const std::span<const uint8_t> text = cursor.take(head[1], 1);
        texts.emplace_back(head[0], std::string(text.begin(), text.end()));
    }
    cursor.finish();
}

void add_pages(Bytes &node, std::span<const PageRecord> pages) {
    for (const PageRecord &page : pages) {
        const uint32_t counts[4] = {page.valid, static_cast<uint32_t>(page.runs.size()),
                                    static_cast<uint32_t>(page.fingerprints.size()), 0};
        add(node, page.digest.bytes.data(), page.digest.bytes.size());
        add(node, counts, 4);
        add(node, page.runs.data(), page.runs.size());
        add(node, page.fingerprints.data(), page.fingerprints.size());
    }
}

void parse_pages(std::span<const uint8_t> node, uint32_t count, std::vector<PageRecord> &pages) {
    Cursor cursor(node);
    for (uint32_t i = 0; i < count; ++i) {
        PageRecord &page = pages.emplace_back();
        cursor.copy(page.digest.bytes.data(), page.digest.bytes.size());
        uint32_t counts[4];
        cursor.copy(counts, 4);
        page.valid = counts[0];
        const std::span<const uint8_t> runs = cursor.take(counts[1], sizeof(Run));
        page.runs.resize(counts[1]);
        std::copy(runs.begin(), runs.end(), reinterpret_cast<uint8_t *>(page.runs.data()));
        const std::span<const uint8_t> prints = cursor.take(counts[2], sizeof(uint32_t));
        page.fingerprints.resize(counts[2]);
        std::copy(prints.begin(), prints.end(),
                  reinterpret_cast<uint8_t *>(page.fingerprints.data()));
        if (counts[3] != 0) {
            fail(Status::corrupt, "node: unused bytes of a page's entry are not zero");
        }
    }
    cursor.finish();
}

void add_settings(Bytes &node, std::span<const SettingRecord> settings) {
    for (const SettingRecord &each : settings) {
        const uint32_t head[4] = {each.plain, each.from, each.edges,
                                  static_cast<uint32_t>(each.code.size())};
        add(node, head, 4);
        add(node, each.code.data(), each.code.size());
    }
}

void parse_settings(std::span<const uint8_t> node, uint32_t count,
                    std::vector<SettingRecord> &settings) {
    Cursor cursor(node);
    for (uint32_t i = 0; i < count; ++i) {
        uint32_t head[4];
        cursor.copy(head, 4);
        const std::span<const uint8_t> code = cursor.take(head[3], 1);
        settings.push_back({head[0], head[1], head[2], {code.begin(), code.end()}});
    }
    cursor.finish();
}

} // namespace stasis::format
