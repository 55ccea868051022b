// The fixed frame of a snapshot: header block and root slot blocks, each with its own checksum, and
// the root digest (FORMAT.md, "Header", "Root slots", "Digests"). Knows no manifest and no file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "format/checksum.h"
#include "format/constants.h"
#include "format/digest.h"

namespace stasis::format {

using Block = std::array<uint8_t, kBlockBytes>;

// A committed state of the file.
struct RootSlot {
    uint64_t sequence = 0;        // commits so far; 0: the slot was never written
    uint64_t features_ignore = 0; // a reader that does not know a bit may ignore it
    uint64_t features_read = 0;   // ... may read the file, but not write to it
    uint64_t features_refuse = 0; // ... must refuse the file
    uint64_t file_bytes = 0;
    uint64_t manifest_offset = 0;
    uint64_t manifest_bytes = 0;
    Checksum manifest_checksum;
    Digest root;
    bool operator==(const RootSlot &) const = default;
};

Block encode_header();
Block encode_slot(const RootSlot &slot);

// Magic, checksum, version, in this order. Throws Error(corrupt), Error(version).
void check_header(const Block &header);
// Checksum, unused bytes, features that must be refused. Throws Error(corrupt), Error(version).
RootSlot decode_slot(const Block &slot);

// The digest that covers everything: `slot` gives the features, the manifest carries the digests of
// the sections.
Digest root_digest(const RootSlot &slot, const uint8_t *manifest, size_t manifest_bytes);

} // namespace stasis::format
