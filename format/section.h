// The frame at the beginning of every section of the file (FORMAT.md, "Sections"). Must not know
// files or what sections hold.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "format/checksum.h"
#include "format/codec.h"
#include "format/constants.h"

namespace stasis::format {

enum class SectionKind : uint32_t {
    identity = 1,
    nodes = 2,
    run = 3,
    hidden = 4,
    logits_row = 5,
    manifest = 6,
    root = 7,
    evictions = 8,
    recurrent = 9,
    host_data = 10,
    host_value = 11
};
const char *section_name(SectionKind kind);

struct Frame {
    SectionKind kind = SectionKind::identity;
    Codec codec = Codec::raw;
    uint64_t stored_bytes = 0;
    uint64_t raw_bytes = 0;
    Checksum checksum;     // of the raw bytes
    uint64_t sequence = 0; // of the commit that wrote it
};

inline constexpr size_t kFrameBytes = 64;
using FrameBytes = std::array<uint8_t, kFrameBytes>;

// Returns the bytes of the whole section: frame, stored bytes and padding.
constexpr uint64_t section_bytes(uint64_t stored_bytes) {
    return align_up(kFrameBytes + stored_bytes);
}

// Returns the frame's bytes with their checksum.
FrameBytes encode_frame(const Frame &frame);
// Checks magic, checksum, unused bytes and that sizes agree with the codec; accepts kinds that this
// build does not have. `offset` is for the message. Throws Error(corrupt).
Frame decode_frame(const FrameBytes &bytes, uint64_t offset);

} // namespace stasis::format
