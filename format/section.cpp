// Encoding and checking of section frames; see section.h and FORMAT.md, "Sections", for the
// offsets.
#include "format/section.h"

#include <cstring>

#include "format/state/error.h"

namespace stasis::format {

namespace {

constexpr uint8_t kFrameMagic[4] = {'S', 'E', 'C', 'T'};
constexpr size_t kSumAt = 56; // of the frame's own checksum

} // namespace

const char *section_name(SectionKind kind) {
    switch (kind) {
    case SectionKind::identity:
        return "identity";
    case SectionKind::nodes:
        return "nodes";
    case SectionKind::run:
        return "run";
    case SectionKind::hidden:
        return "hidden";
    case SectionKind::logits_row:
        return "logits_row";
    case SectionKind::manifest:
        return "manifest";
    case SectionKind::root:
        return "root";
    case SectionKind::evictions:
        return "evictions";
    case SectionKind::recurrent:
        return "recurrent";
    case SectionKind::host_data:
        return "host_data";
    case SectionKind::host_value:
        return "host_value";
    }
    return "unknown";
}

FrameBytes encode_frame(const Frame &frame) {
    FrameBytes bytes{};
    const uint32_t kind[2] = {static_cast<uint32_t>(frame.kind),
                              static_cast<uint32_t>(frame.codec)};
    const uint64_t numbers[5] = {frame.stored_bytes, frame.raw_bytes, frame.checksum.low,
                                 frame.checksum.high, frame.sequence};
    std::memcpy(bytes.data(), kFrameMagic, 4);
    std::memcpy(bytes.data() + 4, kind, 8);
    std::memcpy(bytes.data() + 16, numbers, 40);
    const uint64_t sum = checksum64(bytes.data(), kSumAt);
    std::memcpy(bytes.data() + kSumAt, &sum, 8);
    return bytes;
}

Frame decode_frame(const FrameBytes &bytes, uint64_t offset) {
    const auto at = static_cast<Number>(offset);
    if (std::memcmp(bytes.data(), kFrameMagic, 4) != 0) {
        fail(Status::corrupt, "section at byte %llu: its frame does not begin with SECT", at);
    }
    uint64_t sum = 0;
    std::memcpy(&sum, bytes.data() + kSumAt, 8);
    if (sum != checksum64(bytes.data(), kSumAt)) {
        fail(Status::corrupt, "section at byte %llu: its frame does not give its checksum", at);
    }

    uint32_t kind[3] = {};
    uint64_t numbers[5] = {};
    std::memcpy(kind, bytes.data() + 4, 12);
    std::memcpy(numbers, bytes.data() + 16, 40);
    const Frame frame{static_cast<SectionKind>(kind[0]),
                      static_cast<Codec>(kind[1]),
                      numbers[0],
                      numbers[1],
                      {numbers[2], numbers[3]},
                      numbers[4]};
    // A frame must be usable without its section: sizes that the codec cannot have are refused.
    const bool raw = frame.codec == Codec::raw;
    const bool sizes = raw ? frame.raw_bytes == frame.stored_bytes
                           : frame.raw_bytes / kCodecRatioMax <= frame.stored_bytes;
    if (kind[2] != 0 || (!raw && frame.codec != Codec::zstd) || !sizes || frame.sequence == 0) {
        fail(Status::corrupt,
             "section at byte %llu: codec %u with %llu raw bytes in %llu stored ones, of commit "
             "%llu, unused %u",
             at, kind[1], static_cast<Number>(frame.raw_bytes),
             static_cast<Number>(frame.stored_bytes), static_cast<Number>(frame.sequence), kind[2]);
    }
    return frame;
}

} // namespace stasis::format
