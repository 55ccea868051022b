// Snapshots in memory, and forgeries whose checksums are right, so that they reach the checks
// behind them. For the tests and the fuzzer alike.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "format/file.h"
#include "format/frame.h"
#include "format/layout.h"
#include "format/manifest.h"

namespace stasis::format {

using Bytes = std::vector<uint8_t>;

inline const Bytes *memory = nullptr; // what read_memory reads

inline ssize_t read_memory(int, void *data, size_t size_bytes, off_t offset) {
    const auto begin = std::min(static_cast<size_t>(offset), memory->size());
    const size_t count = std::min(size_bytes, memory->size() - begin);
    std::copy_n(memory->data() + begin, count, static_cast<uint8_t *>(data));
    return static_cast<ssize_t>(count);
}

inline int memory_status(int, struct stat *status) {
    *status = {};
    status->st_mode = S_IFREG;
    status->st_size = static_cast<off_t>(memory->size());
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
    memory = &bytes;
    return operations;
}

inline void write_slot(Bytes &bytes, RootSlot slot) {
    const uint8_t *manifest = bytes.data() + slot.manifest_offset;
    slot.manifest_checksum = checksum(manifest, slot.manifest_bytes);
    slot.root = root_digest(slot, manifest, slot.manifest_bytes);
    const Block header = encode_header();
    const Block block = encode_slot(slot);
    std::copy(header.begin(), header.end(), bytes.begin());
    std::copy(block.begin(), block.end(), bytes.begin() + kSlotA);
}

inline RootSlot read_slot(const Bytes &bytes) {
    Block block;
    std::copy_n(bytes.begin() + kSlotA, block.size(), block.begin());
    return decode_slot(block);
}

// Writes checksums of header, root slot and manifest, and the root digest, anew; leaves the bytes
// as they are where the manifest does not lie in the file.
inline void reseal(Bytes &bytes) {
    if (bytes.size() < kSectionsBegin) {
        return;
    }
    RootSlot slot;
    slot.sequence = 1;
    slot.file_bytes = bytes.size();
    std::memcpy(&slot.manifest_offset, bytes.data() + kSlotA + 40, 8);
    if (slot.manifest_offset <= bytes.size()) {
        slot.manifest_bytes = bytes.size() - slot.manifest_offset;
        write_slot(bytes, slot);
    }
}

using Change = std::function<void(State &state, Layout &layout)>;

// The file with a changed manifest, checksums right.
inline Bytes forged(const Bytes &bytes, const Change &change) {
    RootSlot slot = read_slot(bytes);
    State state;
    Layout layout;
    parse_manifest({bytes.data() + slot.manifest_offset, slot.manifest_bytes}, state, layout);
    change(state, layout);
    const Bytes manifest = build_manifest(state, layout);
    Bytes result(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(slot.manifest_offset));
    result.insert(result.end(), manifest.begin(), manifest.end());
    slot.manifest_bytes = manifest.size();
    slot.file_bytes = result.size();
    write_slot(result, slot);
    return result;
}

// The file with changed bytes in one section, checksums and SHA-256 right.
inline Bytes forged_section(const Bytes &bytes, size_t section,
                            const std::function<void(uint8_t *)> &change) {
    Bytes changed = bytes;
    return forged(changed, [&](State &, Layout &layout) {
        Section &entry = layout.sections.at(section);
        uint8_t *data = changed.data() + entry.offset;
        change(data);
        entry.checksum = checksum(data, entry.raw_bytes);
        if (entry.kind != SectionKind::page) {
            entry.digest = Sha256().bytes(data, entry.raw_bytes).finish();
        }
    });
}

} // namespace stasis::format
