// The fixed beginning of a snapshot: header block and root slot blocks, each with its own checksum,
// and the root digest (FORMAT.md, "Header", "Roots", "Digests"). Must not know manifests or files.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "format/checksum.h"
#include "format/constants.h"
#include "format/state/digest.h"

namespace stasis::format {

using Block = std::array<uint8_t, kBlockBytes>;

// A committed state of the file, as a root slot or the trailer of the stream form stores it.
struct Root {
    uint64_t sequence = 0;        // commits so far, from 1
    uint64_t features_ignore = 0; // a reader that does not implement a bit may ignore it
    uint64_t features_read = 0;   // ... may read the file, but not write to it
    uint64_t features_refuse = 0; // ... must refuse the file
    uint64_t file_bytes = 0;      // committed bytes: the file may be longer
    uint64_t manifest_offset = 0; // of the manifest's section
    uint64_t manifest_bytes = 0;
    Digest digest; // root digest
    bool operator==(const Root &) const = default;
};

inline constexpr size_t kRootBytes = 88;
using RootBytes = std::array<uint8_t, kRootBytes>;

// Return the bytes with their checksums; a root alone has none.
Block encode_header();
RootBytes encode_root(const Root &root);
Block encode_slot(const Root &root);

// Checks magic, checksum and version, in this order. Throws Error(corrupt), Error(version).
void check_header(const Block &header);
// Returns the root. Throws Error(version) for features that this build must refuse, Error(corrupt)
// if the sequence is 0.
Root decode_root(const RootBytes &bytes);
// Returns whether the checksum of a header or slot is right.
bool block_intact(const Block &block);
// Checks the unused bytes and returns the root, as decode_root. The checksum must be right.
Root decode_slot(const Block &slot);

// Returns the digest that covers the whole state: `root` supplies the features, and the manifest
// contains the digests of everything that it refers to.
Digest root_digest(const Root &root, const uint8_t *manifest, size_t manifest_bytes);

} // namespace stasis::format
