// Dead bytes and the check of all sections; see dead.h.
#include "format/dead.h"

#include <algorithm>
#include <map>
#include <utility>

#include "format/codec.h"
#include "format/naming.h"
#include "format/pages.h"
#include "format/recurrent.h"
#include "format/state/error.h"

namespace stasis::format {

namespace {

// The shapes of one slot in the layer groups, each once, by their numbers: those that a run can
// have are found without a look at every group, of which a forged file may have many.
std::vector<RunShape> slot_shapes(const State &state) {
    std::vector<RunShape> shapes;
    for (size_t group = 0; group < state.groups.size(); ++group) {
        shapes.push_back(run_shape(state, group, 1));
    }
    const auto key = [](const RunShape &shape) { return std::pair(shape.numbers(), shape.rows); };
    std::sort(shapes.begin(), shapes.end(),
              [&](const RunShape &a, const RunShape &b) { return key(a) < key(b); });
    const auto same = [&](const RunShape &a, const RunShape &b) { return key(a) == key(b); };
    shapes.erase(std::unique(shapes.begin(), shapes.end(), same), shapes.end());
    return shapes;
}

// Returns whether a compressed run gives its checksum. The layer group and number of slots of a run
// that the state does not refer to are unknown, so every shape with the right number of bytes is
// tried.
bool compressed_run_intact(const std::vector<RunShape> &slot_shapes, const Frame &frame,
                           const std::vector<uint8_t> &stored) {
    std::vector<uint16_t> numbers(frame.raw_bytes / sizeof(uint16_t));
    FrameCoder coder;
    for (size_t slots = 1; slots <= kPagePositionsMax; ++slots) {
        if (frame.raw_bytes % (slots * sizeof(uint16_t)) != 0) {
            continue;
        }
        const size_t of_slot = frame.raw_bytes / (slots * sizeof(uint16_t));
        auto next = std::lower_bound(
            slot_shapes.begin(), slot_shapes.end(), of_slot,
            [](const RunShape &shape, size_t count) { return shape.numbers() < count; });
        for (; next != slot_shapes.end() && next->numbers() == of_slot; ++next) {
            const RunShape shape{next->rows, slots, next->channels};
            try {
                for (size_t i = 0; i < frame_count(shape); ++i) {
                    coder.decode(shape, i, stored.data(), stored.size(), numbers.data());
                }
            } catch (const Error &error) {
                if (error.status() != Status::corrupt) {
                    throw;
                }
                continue; // not of this shape
            }
            if (checksum(numbers.data(), frame.raw_bytes) == frame.checksum) {
                return true;
            }
        }
    }
    return false;
}

// Returns whether a compressed recurrent state gives its checksum. Those of a file are of one
// shape, because it belongs to one model.
bool compressed_state_intact(const Snapshot &snapshot, const Frame &frame,
                             const std::vector<uint8_t> &stored) {
    const size_t count = snapshot.state().recurrent.numbers();
    if (frame.raw_bytes == 0 || frame.raw_bytes != state_bytes(snapshot.state())) {
        return false;
    }
    std::vector<float> numbers(count);
    FrameCoder coder;
    try {
        for (size_t i = 0; i < frame_count(halves_shape(count)); ++i) {
            decode_state_piece(coder, count, i, stored.data(), stored.size(), numbers.data());
        }
    } catch (const Error &error) {
        if (error.status() != Status::corrupt) {
            throw;
        }
        return false;
    }
    return checksum(numbers.data(), frame.raw_bytes) == frame.checksum;
}

// Checks a section as a whole. Throws Error(corrupt).
void check_section(const Snapshot &snapshot, const Committed &committed,
                   const std::vector<RunShape> &slot_shapes, uint64_t offset, const Frame &frame) {
    committed.read_frame(offset, frame.kind); // its place, commit and padding
    std::vector<uint8_t> stored(frame.stored_bytes);
    snapshot.input().read(stored.data(), stored.size(), offset + kFrameBytes);
    const bool intact =
        frame.codec == Codec::raw ? checksum(stored.data(), stored.size()) == frame.checksum
        : frame.kind == SectionKind::recurrent ? compressed_state_intact(snapshot, frame, stored)
                                               : compressed_run_intact(slot_shapes, frame, stored);
    if (!intact) {
        fail(Status::corrupt, "section at byte %llu (%s): its bytes do not give its checksum",
             static_cast<Number>(offset), section_name(frame.kind));
    }
}

} // namespace

uint64_t dead_bytes(const Snapshot &snapshot) {
    std::map<uint64_t, uint64_t> live; // [offset] bytes of each section in use
    for (const Section &section : snapshot.sections()) {
        live[section.offset] = section_bytes(section.frame.stored_bytes);
        if (section.frame.kind == SectionKind::nodes) {
            live[section.offset] -=
                section.frame.stored_bytes; // its nodes are counted one by one, below
        }
    }

    // Nodes are counted once each: several trees and levels may be in one section.
    std::map<std::pair<uint64_t, uint32_t>, uint64_t> nodes;
    const auto add = [&](const StoredTree &tree) {
        for (const std::vector<NodeRef> &level : tree.levels) {
            for (const NodeRef &node : level) {
                nodes[{node.section, node.begin}] = node.bytes;
            }
        }
    };
    add(snapshot.trees().log);
    add(snapshot.trees().texts);
    add(snapshot.trees().settings);
    std::for_each(snapshot.trees().pages.begin(), snapshot.trees().pages.end(), add);

    // Sum up; the trailer of a stream form is in use if the root is in it.
    uint64_t used = snapshot.slot() == 0 ? kTrailerBytes : 0;
    for (const auto &[offset, bytes] : live) {
        used += bytes;
    }
    for (const auto &[place, bytes] : nodes) {
        used += bytes;
    }
    const uint64_t all = snapshot.file_bytes() - kSectionsBegin;
    return all > used ? all - used : 0; // a forged file may name bytes twice
}

uint64_t check_all_sections(const Snapshot &snapshot, const Watch &watch) {
    uint64_t count = 0;
    naming(snapshot.input().path(), [&] {
        if (snapshot.slot_damaged()) {
            if (snapshot.slot() ==
                0) { // the root is in a trailer, either slot may be the damaged one
                fail(Status::corrupt, "a root slot does not give its checksum");
            }
            const uint64_t other = snapshot.slot() == kSlotA ? kSlotB : kSlotA;
            fail(Status::corrupt, "the root slot at byte %llu does not give its checksum",
                 static_cast<Number>(other));
        }

        // Walk over all sections: they must end exactly with the state.
        const uint64_t end = snapshot.file_bytes();
        const Committed committed{snapshot.input(), end, snapshot.root().sequence};
        const std::vector<RunShape> shapes = slot_shapes(snapshot.state());
        const uint64_t stopped =
            walk_sections(snapshot.input(), end, [&](uint64_t offset, const Frame &frame) {
                watch.look(offset, end);
                check_section(snapshot, committed, shapes, offset, frame);
                ++count;
                return true;
            });
        if (stopped != end) {
            fail(Status::corrupt, "its sections end at byte %llu, its state at %llu",
                 static_cast<Number>(stopped), static_cast<Number>(end));
        }
    });
    return count;
}

} // namespace stasis::format
