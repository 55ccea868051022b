// Encoding and checking of the header and root slot blocks; see header.h.
#include "format/header.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "format/state/error.h"

namespace stasis::format {

static_assert(std::endian::native == std::endian::little, "numbers are stored as in memory");

namespace {

constexpr size_t kChecksumAt = kBlockBytes - sizeof(Checksum); // the last 16 bytes of a block
constexpr size_t kHeaderUsed = 16;                             // magic, version, block size
static_assert(sizeof(Checksum) == 16);

// Writes the checksum of a block into its last 16 bytes.
void seal(Block &block) {
    const Checksum sum = checksum(block.data(), kChecksumAt);
    std::memcpy(block.data() + kChecksumAt, &sum, sizeof sum);
}

// The bytes between the fields and the checksum are reserved for later versions. Throws
// Error(corrupt) if one is not zero.
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
    if (!block_intact(header)) {
        fail(Status::corrupt, "header: its bytes do not give its checksum");
    }

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

RootBytes encode_root(const Root &root) {
    RootBytes bytes{};
    const uint64_t numbers[7] = {root.sequence,        root.features_ignore, root.features_read,
                                 root.features_refuse, root.file_bytes,      root.manifest_offset,
                                 root.manifest_bytes};
    std::memcpy(bytes.data(), numbers, sizeof numbers);
    std::memcpy(bytes.data() + sizeof numbers, root.digest.bytes.data(), 32);
    return bytes;
}

Block encode_slot(const Root &root) {
    Block block{};
    const RootBytes bytes = encode_root(root);
    std::copy(bytes.begin(), bytes.end(), block.begin());
    seal(block);
    return block;
}

Root decode_root(const RootBytes &bytes) {
    uint64_t numbers[7];
    std::memcpy(numbers, bytes.data(), sizeof numbers);
    Root root{numbers[0], numbers[1], numbers[2], numbers[3],
              numbers[4], numbers[5], numbers[6], {}};
    std::memcpy(root.digest.bytes.data(), bytes.data() + sizeof numbers, 32);
    if ((root.features_refuse & ~kFeaturesKnown) != 0) {
        fail(Status::version,
             "the file needs format features %016llx; this build, of format version %u, knows "
             "%016llx",
             static_cast<Number>(root.features_refuse), kFormatVersion,
             static_cast<Number>(kFeaturesKnown));
    }
    if (root.sequence == 0) {
        fail(Status::corrupt, "root: nothing was ever committed (sequence 0)");
    }
    return root;
}

bool block_intact(const Block &block) {
    Checksum found;
    std::memcpy(&found, block.data() + kChecksumAt, sizeof found);
    return found == checksum(block.data(), kChecksumAt);
}

Root decode_slot(const Block &block) {
    RootBytes bytes;
    std::copy_n(block.begin(), bytes.size(), bytes.begin());
    const Root root = decode_root(bytes);
    check_unused(block, kRootBytes, "root slot");
    return root;
}

Digest root_digest(const Root &root, const uint8_t *manifest, size_t manifest_bytes) {
    Sha256 hash;
    hash.text("stasis root").u32(kFormatVersion);
    hash.u64(root.features_ignore).u64(root.features_read).u64(root.features_refuse);
    hash.u64(manifest_bytes).bytes(manifest, manifest_bytes);
    return hash.finish();
}

} // namespace stasis::format
