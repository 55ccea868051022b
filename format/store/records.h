// The two kinds of record that a store is made of, beside payloads: segments and roots (STORE.md).
// Converts them to bytes and back, checks them, and names objects. Must not know a backend.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "format/header.h"
#include "format/section.h"
#include "format/state/digest.h"

namespace stasis::format {

using Bytes = std::vector<uint8_t>;

inline constexpr uint32_t kStoreVersion = 1;
// Stored bytes of runs, recurrent states and values of hosts are objects of their own from this
// many bytes on, and cut into pieces of this many.
inline constexpr uint64_t kPayloadMin = 4096;
inline constexpr uint64_t kPayloadMax = uint64_t{16} << 20;
// A segment ends with the section with which its inline bytes reach this.
inline constexpr uint64_t kInlineMax = uint64_t{16} << 20;
inline constexpr size_t kStoredNameMax = 255; // bytes of a session's name
inline constexpr char kRootPrefix[] = "roots/";
inline constexpr char kObjectPrefix[] = "objects/";

// A piece of a virtual file that is an object.
struct Extent {
    uint64_t offset = 0;
    uint64_t bytes = 0;
    Digest digest;       // and so its name
    uint64_t before = 0; // bytes of the segment's payloads before it; follows from these
};

// What one put has appended to a virtual file: whole sections.
struct Segment {
    uint64_t begin = 0, end = 0;  // in the virtual file
    std::vector<Extent> payloads; // ascending
    Bytes inlined;                // all that is in no payload, in order
};

struct SegmentRef {
    Digest digest;    // of the segment's object
    uint64_t end = 0; // in the virtual file; it begins where the one before ends
    uint64_t object_bytes = 0;
    uint64_t payload_bytes = 0; // of its payloads together
};

// What a name refers to.
struct StoredRoot {
    std::string name;
    RootBytes root{};
    Digest state; // with position and model: for lists; a reader compares them with the manifest
    Digest model;
    uint64_t position = 0;
    std::vector<SegmentRef> segments; // from kSectionsBegin to the end

    uint64_t end() const { return segments.empty() ? kSectionsBegin : segments.back().end; }
    // Of the root that it holds, whatever features that has.
    Digest digest() const;
    uint64_t sequence() const;
};

// Whether sections of this kind and size have payloads.
bool has_payload(const Frame &frame);

// Return the keys of an object and of a root. Throws Error(invalid_argument) for a name that is
// empty, too long or not UTF-8.
std::string object_key(const Digest &digest);
std::string root_key(const std::string &name);
// Returns the digest that a key is made of; nothing: it is no object's.
std::optional<Digest> digest_of_key(const std::string &key);

Bytes encode_segment(const Segment &segment);
Bytes encode_stored_root(const StoredRoot &root);

// Check the bytes and return what they say; `key` is for messages. A segment must be laid out as
// its own sections say, so that each has one form. Time and memory are in proportion to the bytes.
// Throw Error(corrupt), Error(version).
Segment decode_segment(std::span<const uint8_t> bytes, const std::string &key);
StoredRoot decode_stored_root(std::span<const uint8_t> bytes, const std::string &key);

} // namespace stasis::format
