// Choosing between root slots, and walking over sections to the trailer; see roots.h.
#include "format/roots.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "format/older.h"
#include "format/state/error.h"

namespace stasis::format {

namespace {

constexpr int kSlotReadsMax = 1000; // more commits than this during one open are not plausible

// Findings on the two root slots.
struct Slots {
    std::optional<Root> newest;
    uint64_t slot = 0;
    size_t intact = 0;
    std::vector<Block> bad = {}; // neither zero nor with the right checksum
    bool damaged() const { return !bad.empty(); }
};

Block read_block(const Input &input, uint64_t offset) {
    Block block;
    input.read(block.data(), block.size(), offset);
    return block;
}

// Returns the newer of two slots. A slot of zeros was never written; a slot whose checksum is wrong
// was torn or damaged. If both are intact, only the newer one is decoded. Throws Error(corrupt) if
// both are of one commit.
Slots choose(const Block &a, const Block &b) {
    Slots slots;
    uint64_t newest = 0;
    const Block *chosen = nullptr;
    for (const Block *block : {&a, &b}) {
        if (*block == Block{}) {
            continue;
        }
        if (!block_intact(*block)) {
            slots.bad.push_back(*block);
            continue;
        }
        ++slots.intact;
        uint64_t sequence = 0;
        std::memcpy(&sequence, block->data(), sizeof sequence);
        if (chosen != nullptr && sequence == newest) {
            fail(Status::corrupt, "both root slots are of commit %llu",
                 static_cast<Number>(sequence));
        }
        if (chosen == nullptr || sequence > newest) {
            newest = sequence;
            chosen = block;
        }
    }

    if (chosen != nullptr) {
        slots.newest = decode_slot(*chosen);
        slots.slot = chosen == &a ? kSlotA : kSlotB;
    }
    return slots;
}

// Reads both slots. Another process may be writing a slot at the same time, and the other slot
// before the first is read, so a slot that seems damaged is read again. Two readings that agree are
// of one moment, and at each moment at most one slot is being written.
Slots read_slots(const Input &input) {
    Block a = read_block(input, kSlotA), b = read_block(input, kSlotB);
    for (int attempt = 0; attempt < kSlotReadsMax; ++attempt) {
        const Slots slots = choose(a, b);
        const Block a_again = slots.damaged() ? read_block(input, kSlotA) : a;
        const Block b_again = slots.damaged() ? read_block(input, kSlotB) : b;
        if (a == a_again && b == b_again) {
            return slots;
        }
        a = a_again;
        b = b_again;
    }
    return choose(a, b);
}

// Checks that the manifest is the last section of a state, followed by at most the trailer, which
// is `tail` bytes long. Throws Error(corrupt).
void check_bounds(const Root &root, uint64_t tail) {
    const uint64_t bytes = root.file_bytes;
    const bool placed = root.manifest_offset >= kSectionsBegin &&
                        root.manifest_offset % kAlignment == 0 && root.manifest_offset < bytes &&
                        root.manifest_bytes <= kManifestBytesMax &&
                        section_bytes(root.manifest_bytes) == bytes - root.manifest_offset - tail;
    if (!placed) {
        fail(Status::corrupt, "root: a manifest of %llu bytes at byte %llu, in a state of %llu",
             static_cast<Number>(root.manifest_bytes), static_cast<Number>(root.manifest_offset),
             static_cast<Number>(bytes));
    }
}

// Checks the trailer, a section at `offset`, and returns its root. Throws Error(corrupt),
// Error(version).
Root check_trailer(const uint8_t *bytes, const Frame &frame, uint64_t offset) {
    RootBytes root_bytes;
    std::copy_n(bytes + kFrameBytes, root_bytes.size(), root_bytes.begin());
    const bool padded = std::all_of(bytes + kFrameBytes + kRootBytes, bytes + kTrailerBytes,
                                    [](uint8_t byte) { return byte == 0; });
    if (frame.codec != Codec::raw || frame.stored_bytes != kRootBytes || !padded ||
        frame.checksum != checksum(root_bytes.data(), root_bytes.size())) {
        fail(Status::corrupt, "root section at byte %llu: not as it was written",
             static_cast<Number>(offset));
    }
    const Root root = decode_root(root_bytes);
    if (root.file_bytes != offset + kTrailerBytes || root.sequence != frame.sequence) {
        fail(Status::corrupt, "root section at byte %llu: of a state of %llu bytes, commit %llu",
             static_cast<Number>(offset), static_cast<Number>(root.file_bytes),
             static_cast<Number>(root.sequence));
    }
    check_bounds(root, kTrailerBytes);
    return root;
}

// Returns the root in the trailer of an input whose slots are empty or damaged; nothing if its
// sections end without one.
std::optional<Root> walk_to_trailer(const Input &input, const Watch &watch) {
    std::optional<Root> trailer;
    const uint64_t size = input.size();
    walk_sections(input, size, [&](uint64_t offset, const Frame &frame) {
        watch.step(0, 0);
        if (frame.kind == SectionKind::root) {
            std::array<uint8_t, kTrailerBytes> section;
            input.read(section.data(), section.size(), offset);
            trailer = check_trailer(section.data(), frame, offset);
        }
        return !trailer;
    });
    return trailer;
}

// Collects the bytes of a stream. Never allocates more than a few times the bytes that have
// arrived, whatever sizes a forged stream claims.
struct Arriving {
    const Source &source;
    const Watch &watch;
    std::vector<uint8_t> bytes = {};

    void until(uint64_t end) {
        while (bytes.size() < end) {
            const size_t begin = bytes.size();
            bytes.resize(begin +
                         static_cast<size_t>(std::min<uint64_t>(end - begin, size_t{1} << 20)));
            size_t filled = begin;
            while (filled < bytes.size()) {
                watch.step(0, 0);
                const size_t count =
                    source.read(source.user, bytes.data() + filled, bytes.size() - filled);
                if (count == 0) {
                    fail(Status::corrupt, "the stream ends at byte %zu, before the snapshot does",
                         filled);
                }
                filled += count;
            }
        }
    }
    Block block(uint64_t offset) const {
        Block block;
        std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(offset), block.size(), block.begin());
        return block;
    }
    Frame frame(uint64_t offset) const {
        FrameBytes frame;
        std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(offset), frame.size(), frame.begin());
        return decode_frame(frame, offset);
    }
};

} // namespace

CurrentRoot find_root(const Input &input, const Watch &watch) {
    if (input.size() < kSectionsBegin) { // a commit never shortens a file below this
        fail(Status::corrupt, "not a snapshot: %llu bytes, header and root slots take %llu",
             static_cast<Number>(input.size()), static_cast<Number>(kSectionsBegin));
    }
    // Choose a root: from the slots, or else from the trailer.
    check_header(read_block(input, 0));

    const Slots slots = read_slots(input);
    CurrentRoot current;
    current.slot_damaged = slots.damaged();
    current.both_intact = slots.intact == 2;
    if (slots.newest) {
        current.root = *slots.newest;
        current.slot = slots.slot;
        check_bounds(current.root, 0);
    } else if (const std::optional<Root> trailer = walk_to_trailer(input, watch)) {
        current.root = *trailer;
    } else {
        fail(Status::corrupt, "no root: %s, and the sections do not end in one",
             slots.damaged() ? "a root slot is damaged, the other no help"
                             : "both slots are empty");
    }

    // The size is read after the slots, because a commit makes the file longer before it writes the
    // root.
    const uint64_t size = input.size();
    if (current.root.file_bytes > size) {
        fail(Status::corrupt, "the file has %llu bytes, its root says %llu",
             static_cast<Number>(size), static_cast<Number>(current.root.file_bytes));
    }

    // A later commit would have made the file longer. The length of the file that a stream came
    // from is not available, so a damaged slot is examined in any case.
    if (current.slot_damaged && (input.file() == nullptr || size > current.root.file_bytes)) {
        current.older = std::any_of(slots.bad.begin(), slots.bad.end(), [&](const Block &block) {
            return was_finished(input, current.root, block);
        });
    }
    return current;
}

CurrentRoot check_root(const Input &input, const RootBytes &root) {
    CurrentRoot current;
    current.root = decode_root(root);
    current.slot = kSlotA;
    check_bounds(current.root, 0);
    if (current.root.file_bytes != input.size()) {
        fail(Status::corrupt, "its parts have %llu bytes, its root says %llu",
             static_cast<Number>(input.size()), static_cast<Number>(current.root.file_bytes));
    }
    return current;
}

std::vector<uint8_t> read_stream(const Source &source, const Watch &watch) {
    Arriving stream{source, watch};
    stream.until(kBlockBytes);
    check_header(stream.block(0));
    stream.until(kSectionsBegin);
    // A file's slots state its length; a stream form has empty slots and ends with its trailer.
    const Slots slots = choose(stream.block(kSlotA), stream.block(kSlotB));
    if (slots.newest) {
        stream.until(slots.newest->file_bytes);
        return std::move(stream.bytes);
    }
    for (uint64_t offset = kSectionsBegin;;) {
        stream.until(offset + kFrameBytes);
        const Frame frame = stream.frame(offset);
        if (frame.stored_bytes > UINT64_MAX / 2 - offset) {
            fail(Status::corrupt, "section at byte %llu: %llu bytes", static_cast<Number>(offset),
                 static_cast<Number>(frame.stored_bytes));
        }
        offset += section_bytes(frame.stored_bytes);
        stream.until(offset);
        if (frame.kind == SectionKind::root) {
            return std::move(stream.bytes);
        }
    }
}

} // namespace stasis::format
