// Telling torn slots from damaged ones; see older.h. A commit that is finished has written every
// sector of its slot. A torn one has left the first sector, with the root, or the last one, with
// the checksum, as it was before.
#include "format/older.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <optional>
#include <vector>

#include "format/checksum.h"
#include "format/features.h"
#include "format/manifest.h"
#include "format/section.h"
#include "format/state/error.h"

namespace stasis::format {

namespace {

// Returns the place of the manifest that this commit has written; nothing if the sections before
// `end` contain none.
std::optional<Root> find_manifest(const Input &input, uint64_t sequence, uint64_t end) {
    std::optional<Root> root;
    walk_sections(input, end, [&](uint64_t offset, const Frame &frame) {
        if (frame.kind == SectionKind::manifest && frame.sequence == sequence) {
            root.emplace();
            root->sequence = sequence;
            root->file_bytes = offset + section_bytes(frame.stored_bytes);
            root->manifest_offset = offset;
            root->manifest_bytes = frame.stored_bytes;
        }
        return !root;
    });
    return root;
}

// Returns the slot that this commit has written, whose root follows from its manifest; nothing if
// the sections before `end` contain none. Throws Error(corrupt).
std::optional<Block> slot_of(const Input &input, uint64_t sequence, uint64_t end) {
    std::optional<Root> root = find_manifest(input, sequence, end);
    if (!root || root->manifest_bytes > kManifestBytesMax) {
        return std::nullopt;
    }
    std::vector<uint8_t> manifest(root->manifest_bytes);
    input.read(manifest.data(), manifest.size(), root->manifest_offset + kFrameBytes);
    State state;
    Layout layout;
    parse_manifest(manifest, state, layout);
    set_features(state, layout, *root);
    root->digest = root_digest(*root, manifest.data(), manifest.size());
    return encode_slot(*root);
}

bool same_sector(const Block &a, const Block &b, size_t sector) {
    const auto begin = static_cast<ptrdiff_t>(sector * kSectorBytes);
    return std::equal(a.begin() + begin, a.begin() + begin + kSectorBytes, b.begin() + begin);
}

// Returns whether `block` is `slot` in which a write has ended within the checksum: the first bytes
// are those of the new checksum, the rest is the old one's.
bool ends_within_checksum(const Block &block, const Block &slot) {
    constexpr size_t kSumAt = kBlockBytes - sizeof(Checksum);
    std::array<uint8_t, sizeof(Checksum)> whole;
    const Checksum sum = checksum(block.data(), kSumAt);
    std::memcpy(whole.data(), &sum, sizeof sum);
    const auto at = block.begin() + kSumAt;
    const auto [written, rest] = std::mismatch(whole.begin(), whole.end(), at);
    return std::equal(rest, block.end(), slot.begin() + (rest - block.begin()));
}

} // namespace

bool was_finished(const Input &input, const Root &current, const Block &block) {
    assert(block != Block{} && !block_intact(block));
    // A torn block has its first or its last sector in common with what it was before.
    constexpr size_t kLast = kBlockBytes / kSectorBytes - 1;
    const auto torn = [&](const Block &before) {
        return same_sector(block, before, 0) || same_sector(block, before, kLast) ||
               ends_within_checksum(block, before);
    };
    // That was empty or the slot of the commit before the current one.
    if (torn(Block{})) {
        return false;
    }
    try {
        const std::optional<Block> before =
            slot_of(input, current.sequence - 1, current.manifest_offset);
        return !before || !torn(*before);
    } catch (const Error &error) {
        if (error.status() != Status::corrupt) {
            throw;
        }
        return true; // the sections contain no earlier commit: there is no sign of a torn slot
    }
}

} // namespace stasis::format
