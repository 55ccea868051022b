// Snapshots in memory, and forgeries whose checksums are right, so that they reach the checks after
// them. For the tests and the fuzzer alike.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "format/header.h"
#include "format/layout.h"
#include "format/manifest.h"
#include "format/reader.h"
#include "format/state/file.h"
#include "format/tree.h"

namespace stasis::format {

inline const Bytes *memory_bytes = nullptr; // what read_memory reads

inline ssize_t read_memory(int, void *data, size_t size_bytes, off_t offset) {
    const auto begin = std::min(static_cast<size_t>(offset), memory_bytes->size());
    const size_t count = std::min(size_bytes, memory_bytes->size() - begin);
    std::copy_n(memory_bytes->data() + begin, count, static_cast<uint8_t *>(data));
    return static_cast<ssize_t>(count);
}

inline int memory_status(int, struct stat *status) {
    *status = {};
    status->st_mode = S_IFREG;
    status->st_size = static_cast<off_t>(memory_bytes->size());
    return 0;
}

// Operations that read `bytes` whatever the path; the reference must outlive their use.
inline const FileOperations &memory_files(const Bytes &bytes) {
    static const FileOperations operations = [] {
        FileOperations files{};
        files.open = [](const char *, int, mode_t) { return 1000; };
        files.status = memory_status;
        files.read_at = read_memory;
        files.close = [](int) { return 0; };
        return files;
    }();
    memory_bytes = &bytes;
    return operations;
}

inline Root read_root(const Bytes &bytes, uint64_t slot = kSlotA) {
    Block block;
    std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(slot), block.size(), block.begin());
    return decode_slot(block);
}

inline void write_block(Bytes &bytes, uint64_t at, const Block &block) {
    std::copy(block.begin(), block.end(), bytes.begin() + static_cast<ptrdiff_t>(at));
}

// Writes the frame of the section at `offset` again, from the bytes after it.
inline void reframe(Bytes &bytes, uint64_t offset, SectionKind kind, uint64_t size) {
    const Frame frame{
        kind, Codec::raw, size, size, checksum(bytes.data() + offset + kFrameBytes, size), 1};
    const FrameBytes begin = encode_frame(frame);
    std::copy(begin.begin(), begin.end(), bytes.begin() + static_cast<ptrdiff_t>(offset));
}

inline uint64_t append_section(Bytes &bytes, SectionKind kind, const Bytes &data) {
    const uint64_t offset = bytes.size();
    bytes.resize(offset + section_bytes(data.size()));
    std::copy(data.begin(), data.end(),
              bytes.begin() + static_cast<ptrdiff_t>(offset + kFrameBytes));
    reframe(bytes, offset, kind, data.size());
    return offset;
}

// Header and a slot, which names the manifest at this place, with right checksums.
inline void write_root(Bytes &bytes, Root root, uint64_t slot = kSlotA) {
    root.file_bytes = bytes.size();
    root.digest =
        root_digest(root, bytes.data() + root.manifest_offset + kFrameBytes, root.manifest_bytes);
    write_block(bytes, 0, encode_header());
    write_block(bytes, slot, encode_slot(root));
}

// The bytes before the manifest of a file, then `more` sections, then this manifest, referred to by
// the slot in force.
inline Bytes with_manifest(const Bytes &bytes, const Snapshot &snapshot, const Bytes &more,
                           const Bytes &manifest) {
    Root root = snapshot.root();
    Bytes result(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(root.manifest_offset));
    result.insert(result.end(), more.begin(), more.end());
    root.manifest_offset = append_section(result, SectionKind::manifest, manifest);
    root.manifest_bytes = manifest.size();
    write_root(result, root, snapshot.slot());
    return result;
}

// Writes checksums of header, root slot and manifest, and the root digest, again. Leaves the bytes
// as they are if the manifest is not within the file.
inline void reseal(Bytes &bytes) {
    if (bytes.size() < kSectionsBegin) {
        return;
    }
    Root root;
    root.sequence = 1;
    std::memcpy(&root.manifest_offset, bytes.data() + kSlotA + 40, 8);
    std::memcpy(&root.manifest_bytes, bytes.data() + kSlotA + 48, 8);
    if (root.manifest_offset <= bytes.size() &&
        section_bytes(root.manifest_bytes) == bytes.size() - root.manifest_offset) {
        reframe(bytes, root.manifest_offset, SectionKind::manifest, root.manifest_bytes);
        write_root(bytes, root);
    }
}

// The stream form: empty slots, and after the first `end` bytes a trailer with this root.
inline Bytes with_trailer(Bytes bytes, uint64_t end, const Root &root) {
    write_block(bytes, kSlotA, {});
    write_block(bytes, kSlotB, {});
    bytes.resize(end + kTrailerBytes);
    const RootBytes trailer = encode_root(root);
    const Frame frame{
        SectionKind::root, Codec::raw, kRootBytes, kRootBytes, checksum(trailer.data(), kRootBytes),
        root.sequence};
    const FrameBytes begin = encode_frame(frame);
    const auto to = bytes.begin() + static_cast<ptrdiff_t>(end);
    std::fill(std::copy(trailer.begin(), trailer.end(), std::copy(begin.begin(), begin.end(), to)),
              bytes.end(), uint8_t{0});
    return bytes;
}

// The file with this root, whose digest is made right, in a slot or (0) as the trailer of a stream.
inline Bytes with_root(Bytes bytes, Root root, uint64_t slot) {
    const auto snapshot = Snapshot::open("memory", memory_files(bytes));
    const uint64_t manifest = snapshot->root().manifest_offset + kFrameBytes;
    root.digest = root_digest(root, bytes.data() + manifest, snapshot->root().manifest_bytes);
    if (slot == 0) {
        return with_trailer(std::move(bytes), snapshot->file_bytes(), root);
    }
    write_block(bytes, slot, encode_slot(root));
    return bytes;
}

using Change = std::function<void(State &state, Layout &layout)>;

// The file with a changed manifest (or identity), checksums right.
inline Bytes forged(const Bytes &bytes, const Change &change) {
    const auto snapshot = Snapshot::open("forged", memory_files(bytes));
    State state = snapshot->state();
    Layout layout = snapshot->layout();
    change(state, layout);
    Bytes more;
    const Bytes identity = build_identity(state.model);
    const Digest digest = Sha256().bytes(identity.data(), identity.size()).finish();
    if (digest != layout.identity.digest && layout.identity == snapshot->layout().identity) {
        append_section(more, SectionKind::identity, identity);
        layout.identity = {snapshot->root().manifest_offset, identity.size(), digest};
    }
    return with_manifest(bytes, *snapshot, more, build_manifest(state, layout));
}

// The file with all settings in its manifest, as builds before there was a tree of them wrote it.
inline Bytes with_settings_in_manifest(const Bytes &bytes, const Change &change) {
    const auto snapshot = Snapshot::open("forged", memory_files(bytes));
    State state = snapshot->state();
    Layout layout = snapshot->layout();
    layout.settings = {};
    layout.setting_count = 0;
    layout.plain_settings.clear();
    change(state, layout);
    Bytes result = with_manifest(bytes, *snapshot, {}, build_manifest(state, layout));
    Root root = read_root(result, snapshot->slot());
    root.features_refuse &= ~kFeatureSettings;
    write_root(result, root, snapshot->slot());
    return result;
}

// The file with changed bytes in one node of a tree, all nodes above it made to fit, and the
// manifest changed by `also`.
inline Bytes forged_node(const Bytes &bytes, TreeKind kind, size_t group, size_t level,
                         size_t index, const std::function<void(Bytes &)> &change,
                         const Change &also = {}) {
    const auto snapshot = Snapshot::open("forged", memory_files(bytes));
    const Trees &trees = snapshot->trees();
    StoredTree tree = kind == TreeKind::log        ? trees.log
                      : kind == TreeKind::texts    ? trees.texts
                      : kind == TreeKind::settings ? trees.settings
                                                   : trees.pages[group];
    const auto node_of = [&](const NodeRef &ref) {
        const auto begin =
            bytes.begin() + static_cast<ptrdiff_t>(ref.section + kFrameBytes + ref.begin);
        return Bytes(begin, begin + ref.bytes);
    };
    // New nodes are appended at the end; the manifest, written last, follows them.
    const uint64_t section = snapshot->root().manifest_offset;
    Bytes nodes;
    Bytes node = node_of(tree.levels[level][index]);
    change(node);
    for (;; ++level) {
        const NodeRef ref{section, static_cast<uint32_t>(nodes.size()),
                          static_cast<uint32_t>(node.size()),
                          Sha256().bytes(node.data(), node.size()).finish()};
        nodes.insert(nodes.end(), node.begin(), node.end());
        tree.levels[level][index] = ref;
        if (level + 1 == tree.levels.size()) {
            break;
        }
        node = node_of(tree.levels[level + 1][index / kTreeFan]);
        std::memcpy(node.data() + kNodeHeaderBytes + index % kTreeFan * sizeof ref, &ref,
                    sizeof ref);
        index /= kTreeFan;
    }
    Bytes more;
    append_section(more, SectionKind::nodes, nodes);
    State state = snapshot->state();
    Layout layout = snapshot->layout();
    (kind == TreeKind::log        ? layout.log
     : kind == TreeKind::texts    ? layout.texts
     : kind == TreeKind::settings ? layout.settings
                                  : layout.pages[group]) = tree.root();
    if (also) {
        also(state, layout);
    }
    return with_manifest(bytes, *snapshot, more, build_manifest(state, layout));
}

// The file with changed entries in one leaf of a page table.
inline Bytes forged_pages(const Bytes &bytes, size_t group, uint64_t leaf,
                          const std::function<void(std::span<PageRecord>)> &change,
                          const Change &also = {}) {
    return forged_node(
        bytes, TreeKind::pages, group, 0, leaf,
        [&](Bytes &node) {
            uint32_t header[4];
            std::memcpy(header, node.data(), sizeof header);
            std::vector<PageRecord> entries;
            parse_pages(node, header[3], entries);
            change(entries);
            node.resize(kNodeHeaderBytes);
            add_pages(node, entries);
        },
        also);
}

// The file with one changed entry in a page table.
inline Bytes forged_page(const Bytes &bytes, size_t group, uint64_t index,
                         const std::function<void(PageRecord &)> &change, const Change &also = {}) {
    return forged_pages(
        bytes, group, index / kPagesLeaf,
        [&](std::span<PageRecord> entries) { change(entries[index % kPagesLeaf]); }, also);
}

// The file with changed bytes in the first run of a page, its checksum right.
inline Bytes forged_run(const Bytes &bytes, size_t group, uint64_t index,
                        const std::function<void(uint8_t *)> &change) {
    const auto snapshot = Snapshot::open("forged", memory_files(bytes));
    const Run run = snapshot->page(group, index).runs.at(0);
    Bytes changed = bytes;
    change(changed.data() + run.offset + kFrameBytes);
    reframe(changed, run.offset, SectionKind::run, run.stored_bytes);
    return changed;
}

// The file with other bytes in a whole section that the manifest names by its digest.
inline Bytes forged_section(const Bytes &bytes, SectionRef Layout::*which, SectionKind kind,
                            const std::function<void(uint8_t *)> &change) {
    Bytes changed = bytes;
    return forged(changed, [&](State &, Layout &layout) {
        SectionRef &ref = layout.*which;
        uint8_t *data = changed.data() + ref.offset + kFrameBytes;
        change(data);
        reframe(changed, ref.offset, kind, ref.bytes);
        ref.digest = Sha256().bytes(data, ref.bytes).finish();
    });
}

} // namespace stasis::format
