// Choosing between root slots, and walking over sections to the trailer; see roots.h.
#include "format/roots.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "format/older.h"
#include "format/state/error.h"

namespace stasis::format {

namespace {

constexpr int kSlotReadsMax = 1000; // whoever writes so often does not want to be read

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

// A slot of zeros was never written; one whose checksum is wrong was torn or damaged. Of two good
// ones only the newer has to be understood.
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

// Another process may be writing a slot just then, and the other one before the first is read: a
// slot that seems damaged is read again. Two readings that agree are of one moment, and at each
// moment one slot at most is being written.
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

// The manifest is the last section of a state; behind it lies at most the trailer, which is `tail`
// bytes long.
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

// A walk over the sections of an input whose slots say nothing, to the trailer.
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

// Bytes of a stream as they come; never asks for more memory than a few times what has come.
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
    if (input.size() <
        kSectionsBegin) { // never while others commit, unlike what is looked at below
        fail(Status::corrupt, "not a snapshot: %llu bytes, header and root slots take %llu",
             static_cast<Number>(input.size()), static_cast<Number>(kSectionsBegin));
    }
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
    // After the slots, for a commit makes the file longer before its root says so.
    const uint64_t size = input.size();
    if (current.root.file_bytes > size) {
        fail(Status::corrupt, "the file has %llu bytes, its root says %llu",
             static_cast<Number>(size), static_cast<Number>(current.root.file_bytes));
    }
    // A commit behind this one would have made the file longer; of a stream nobody knows.
    if (current.slot_damaged && (input.file() == nullptr || size > current.root.file_bytes)) {
        current.older = std::any_of(slots.bad.begin(), slots.bad.end(), [&](const Block &block) {
            return was_finished(input, current.root, block);
        });
    }
    return current;
}

std::vector<uint8_t> read_stream(const Source &source, const Watch &watch) {
    Arriving stream{source, watch};
    stream.until(kBlockBytes);
    check_header(stream.block(0));
    stream.until(kSectionsBegin);
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
