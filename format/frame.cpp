// Encoding and checking of the header and root slot blocks; see frame.h.
#include "format/frame.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "format/error.h"

namespace stasis::format {

static_assert(std::endian::native == std::endian::little, "numbers are stored as in memory");

namespace {

constexpr size_t kChecksumAt = kBlockBytes - sizeof(Checksum); // the last 16 bytes of a block
constexpr size_t kHeaderUsed = 16;                             // magic, version, block size
constexpr size_t kSlotUsed = 104;                              // up to the end of the root digest
static_assert(sizeof(Checksum) == 16);

void seal(Block &block) {
    const Checksum sum = checksum(block.data(), kChecksumAt);
    std::memcpy(block.data() + kChecksumAt, &sum, sizeof sum);
}

void check_seal(const Block &block, const char *name) {
    const Checksum expected = checksum(block.data(), kChecksumAt);
    Checksum found;
    std::memcpy(&found, block.data() + kChecksumAt, sizeof found);
    if (found != expected) {
        fail(Status::corrupt, "%s: checksum is %016llx%016llx, its bytes give %016llx%016llx", name,
             static_cast<unsigned long long>(found.high),
             static_cast<unsigned long long>(found.low),
             static_cast<unsigned long long>(expected.high),
             static_cast<unsigned long long>(expected.low));
    }
}

// The bytes between the fields and the checksum are kept for later versions.
void check_unused(const Block &block, size_t used, const char *name) {
    const auto *begin = block.data() + used;
    const auto *end = block.data() + kChecksumAt;
    const auto *found = std::find_if(begin, end, [](uint8_t byte) { return byte != 0; });
    if (found != end) {
        fail(Status::corrupt, "%s: byte %td is unused and must be zero, found %u", name,
             found - block.data(), *found);
    }
}

} // namespace

Block encode_header() {
    Block block{};
    const uint32_t block_bytes = kBlockBytes;
    std::memcpy(block.data(), kMagic, sizeof kMagic);
    std::memcpy(block.data() + 8, &kFormatVersion, 4);
    std::memcpy(block.data() + 12, &block_bytes, 4);
    seal(block);
    return block;
}

void check_header(const Block &header) {
    if (std::memcmp(header.data(), kMagic, sizeof kMagic) != 0) {
        fail(Status::corrupt, "not a snapshot: the file does not begin with the magic bytes");
    }
    check_seal(header, "header");
    uint32_t version = 0;
    uint32_t block_bytes = 0;
    std::memcpy(&version, header.data() + 8, 4);
    std::memcpy(&block_bytes, header.data() + 12, 4);
    if (version != kFormatVersion) {
        fail(Status::version, "the file has format version %u, this build reads version %u",
             version, kFormatVersion);
    }
    if (block_bytes != kBlockBytes) {
        fail(Status::corrupt, "header: block size is %u, expected %zu", block_bytes, kBlockBytes);
    }
    check_unused(header, kHeaderUsed, "header");
}

Block encode_slot(const RootSlot &slot) {
    Block block{};
    const uint64_t numbers[7] = {slot.sequence,        slot.features_ignore, slot.features_read,
                                 slot.features_refuse, slot.file_bytes,      slot.manifest_offset,
                                 slot.manifest_bytes};
    std::memcpy(block.data(), numbers, 56);
    std::memcpy(block.data() + 56, &slot.manifest_checksum, 16);
    std::memcpy(block.data() + 72, slot.root.bytes.data(), 32);
    seal(block);
    return block;
}

RootSlot decode_slot(const Block &block) {
    check_seal(block, "root slot");
    uint64_t numbers[7];
    std::memcpy(numbers, block.data(), 56);
    RootSlot slot{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4],
                  numbers[5], numbers[6], {},         {}};
    std::memcpy(&slot.manifest_checksum, block.data() + 56, 16);
    std::memcpy(slot.root.bytes.data(), block.data() + 72, 32);
    if (slot.features_refuse != 0) {
        fail(Status::version,
             "the file needs format features %016llx; this build, of format version %u, knows none",
             static_cast<unsigned long long>(slot.features_refuse), kFormatVersion);
    }
    check_unused(block, kSlotUsed, "root slot");
    if (slot.sequence == 0) {
        fail(Status::corrupt, "root slot: nothing was ever committed (sequence 0)");
    }
    return slot;
}

Digest root_digest(const RootSlot &slot, const uint8_t *manifest, size_t manifest_bytes) {
    Sha256 hash;
    hash.text("stasis root").u32(kFormatVersion);
    hash.u64(slot.features_ignore).u64(slot.features_read).u64(slot.features_refuse);
    hash.u64(manifest_bytes).bytes(manifest, manifest_bytes);
    return hash.finish();
}

} // namespace stasis::format
