// Numbers of the snapshot format that writer, reader and tests share (FORMAT.md names each). Must
// not contain code.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stasis::format {

inline constexpr uint8_t kMagic[8] = {0x89, 'S', 'T', 'A', 'S', 'I', 'S', '\n'};
inline constexpr uint32_t kFormatVersion = 1;
// Features with which a reader that does not implement them may read the file, but not write to it.
// Sampling settings use fields that version 2 of the contract's sampling added:
inline constexpr uint64_t kFeatureSamplingV2 = 1;
inline constexpr uint64_t kFeatureSamplingV3 = 2; // the same of version 3: constraints
inline constexpr uint64_t kFeatureHostData = 4;   // a host's data, which a commit would lose
inline constexpr uint64_t kFeaturesReadKnown =
    kFeatureSamplingV2 | kFeatureSamplingV3 | kFeatureHostData;

// Features with which a reader that does not implement them must refuse the file.
inline constexpr uint64_t kFeatureEvictions = 1; // some positions were evicted
inline constexpr uint64_t kFeatureProfile = 2;   // some of it was computed under a device profile
inline constexpr uint64_t kFeatureRecurrent = 4; // some layers have a recurrent state
inline constexpr uint64_t kFeatureExperts = 8;   // the contract has a part for experts
// Some layers use the keys and values of others, or have other sizes of heads than the rest.
inline constexpr uint64_t kFeatureLayers = 16;
inline constexpr uint64_t kFeatureSettings = 32; // settings are in a tree, some with sets of tokens
inline constexpr uint64_t kFeaturesKnown = kFeatureEvictions | kFeatureProfile | kFeatureRecurrent |
                                           kFeatureExperts | kFeatureLayers | kFeatureSettings;

// The header, root slot A and root slot B are blocks of this size; see kSectorBytes for torn
// writes.
inline constexpr size_t kBlockBytes = 4096;
// A disk writes this part of a block whole, even when the power fails.
inline constexpr size_t kSectorBytes = 512;
inline constexpr uint64_t kSlotA = kBlockBytes;
inline constexpr uint64_t kSlotB = 2 * kBlockBytes;
inline constexpr uint64_t kSectionsBegin = 3 * kBlockBytes;

inline constexpr uint64_t kAlignment = 64; // of sections and of page buffers
constexpr uint64_t align_up(uint64_t offset) {
    return (offset + kAlignment - 1) / kAlignment * kAlignment;
}

// Trees: children of an inner node, and items of a leaf.
inline constexpr uint32_t kTreeFan = 32;
inline constexpr uint32_t kLogLeaf = 256;
inline constexpr uint32_t kTextsLeaf = 64;
inline constexpr uint32_t kPagesLeaf = 8;
inline constexpr uint32_t kSettingsLeaf = 16;
inline constexpr uint64_t kNodesBytesMax =
    64U << 20; // of one section of nodes: offsets in it fit 32 bits

inline constexpr char kIdentityIdentifier[] = "STSI"; // of FlatBuffers; the manifest's is STSM
inline constexpr uint64_t kManifestBytesMax = 64U << 20;
inline constexpr uint32_t kGeometryMax = 1U
                                         << 16; // layers, KV heads, head_dim: products fit 64 bits
inline constexpr uint32_t kPagePositionsStep = 32;
inline constexpr uint32_t kPagePositionsMax = 256; // bounds what a short last page can allocate
inline constexpr size_t kSamplingsMax = 1U << 16;
inline constexpr size_t kTopMax = 64;
inline constexpr size_t kProfileIdMax = 191;                 // characters
inline constexpr uint32_t kProfilePaddedMax = 1U << 16;      // rows
inline constexpr uint32_t kTapsMax = 1U << 8;                // of a recurrent layer's convolution
inline constexpr uint64_t kRecurrentNumbersMax = 1ULL << 32; // of one state, all layers
inline constexpr size_t kTextBytesMax = 1U << 16;            // of one token
// The raw bytes of a run are at most this many times its stored bytes (a run that compresses better
// is stored raw), so that a small file cannot make a reader allocate much memory.
inline constexpr uint64_t kCodecRatioMax = 16;
// The same of sets of tokens, and of what settings share, to the items that they are made of.
inline constexpr uint64_t kSettingsRatioMax = 16;
// Tokens of 7 digits: as JSON, sets have no more than 64 bytes for each of the file.
inline constexpr uint32_t kSettingsVocabularyMax = 1U << 23;

// Bytes between two checks of the Watch.
inline constexpr size_t kChunkBytes = 4U << 20;
// Raw bytes of the runs that all threads work on together: few enough to stay in the CPU's cache.
inline constexpr uint64_t kBatchBytes = 4U << 20;
// A save passes the bytes that it has written to the disk in steps of this size.
inline constexpr uint64_t kSyncBytes = 8U << 20;

} // namespace stasis::format
