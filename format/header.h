// The fixed beginning of a snapshot: header block and root slot blocks, each with its own checksum,
// and the root digest (FORMAT.md, "Header", "Roots", "Digests"). Knows no manifest and no file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "format/checksum.h"
#include "format/constants.h"
#include "format/state/digest.h"

namespace stasis::format {

using Block = std::array<uint8_t, kBlockBytes>;

// A committed state of the file, as a slot or the trailer of the stream form says it.
struct Root {
    uint64_t sequence = 0;        // commits so far, from 1
    uint64_t features_ignore = 0; // a reader that does not know a bit may ignore it
    uint64_t features_read = 0;   // ... may read the file, but not write to it
    uint64_t features_refuse = 0; // ... must refuse the file
    uint64_t file_bytes = 0;      // that are committed: there may be more behind them
    uint64_t manifest_offset = 0; // of its section
    uint64_t manifest_bytes = 0;
    Digest digest; // root digest
    bool operator==(const Root &) const = default;
};

inline constexpr size_t kRootBytes = 88;
using RootBytes = std::array<uint8_t, kRootBytes>;

Block encode_header();
RootBytes encode_root(const Root &root);
Block encode_slot(const Root &root);

// Magic, checksum, version, in this order. Throws Error(corrupt), Error(version).
void check_header(const Block &header);
// Features that must be refused; sequence not 0. Throws Error(corrupt), Error(version).
Root decode_root(const RootBytes &bytes);
// Whether the checksum of a header or slot is right.
bool block_intact(const Block &block);
// Unused bytes, then as decode_root.
Root decode_slot(const Block &slot);

// The digest that covers everything: `root` gives the features, the manifest the digests of all
// that it refers to.
Digest root_digest(const Root &root, const uint8_t *manifest, size_t manifest_bytes);

} // namespace stasis::format
