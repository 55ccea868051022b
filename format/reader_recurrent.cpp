// Reading recurrent states of a snapshot: decoded and checked; see reader.h.
#include <algorithm>
#include <memory>

#include "format/naming.h"
#include "format/reader.h"
#include "format/recurrent.h"
#include "format/state/sha256_lanes.h"

namespace stasis::format {

namespace {

std::string state_name(const State &state, size_t index) {
    return "recurrent state at position " + std::to_string(state.states[index].position);
}

} // namespace

// Reads all numbers of a section, which its frame has told to be of the right size.
void Snapshot::read_state_section(const Section &section, float *numbers,
                                  const Parallel &parallel) const {
    const size_t count = state().recurrent.numbers();
    const uint64_t begin = section.offset + kFrameBytes;
    if (section.frame.codec == Codec::raw) {
        const uint64_t bytes = section.frame.stored_bytes;
        for_each(parallel, (bytes + kChunkBytes - 1) / kChunkBytes, [&](size_t i) {
            const uint64_t at = i * kChunkBytes;
            input_.read(reinterpret_cast<uint8_t *>(numbers) + at,
                        std::min<uint64_t>(kChunkBytes, bytes - at), begin + at);
        });
        return;
    }
    const auto stored = std::make_unique_for_overwrite<uint8_t[]>(section.frame.stored_bytes);
    input_.read(stored.get(), section.frame.stored_bytes, begin);
    for_each(parallel, frame_count(halves_shape(count)), [&](size_t i) {
        decode_state_piece(coder_, count, i, stored.get(), section.frame.stored_bytes, numbers);
    });
}

// Checks the digest of a state, and that its numbers are finite.
void Snapshot::check_state_numbers(size_t index, const float *numbers,
                                   const Parallel &parallel) const {
    const size_t count = state().recurrent.numbers();
    std::vector<Digest> pieces(recurrent_pieces(count));
    // Few pieces a job, so that no thread idles; all that one thread can hash together, if it is
    // alone.
    const size_t grain = parallel.run == nullptr ? kSha256Lanes : kSha256Interleaved;
    for_each(parallel, (pieces.size() + grain - 1) / grain, [&](size_t i) {
        const size_t begin = i * grain;
        recurrent_piece_digests(numbers, count, begin, std::min(begin + grain, pieces.size()),
                                &pieces[begin]);
    });
    const RecurrentState &expected = state().states[index];
    const Digest digest = recurrent_state_digest(expected.position, count, pieces);
    if (digest != expected.digest) {
        fail(Status::corrupt, "its digest is %s, expected %s", to_hex(digest).c_str(),
             to_hex(expected.digest).c_str());
    }
    for_each(parallel, pieces.size(), [&](size_t piece) {
        const size_t begin = piece * kRecurrentPiece;
        check_state_finite(state(), index, numbers, begin, std::min(kRecurrentPiece, count - begin),
                           Status::corrupt);
    });
}

void Snapshot::read_state(size_t index, float *numbers, const Parallel &parallel) const {
    const auto read = [&] {
        const StateRef &ref = layout().states[index];
        const Frame frame = committed().read_frame(ref.offset, SectionKind::recurrent);
        if (frame.stored_bytes != ref.stored_bytes || frame.raw_bytes != state_bytes(state())) {
            fail(Status::corrupt,
                 "section at byte %llu (recurrent): %llu bytes in %llu stored ones, expected %llu "
                 "in %llu",
                 static_cast<Number>(ref.offset), static_cast<Number>(frame.raw_bytes),
                 static_cast<Number>(frame.stored_bytes), static_cast<Number>(state_bytes(state())),
                 static_cast<Number>(ref.stored_bytes));
        }
        read_state_section({ref.offset, frame}, numbers, parallel);
        if (checksum(numbers, frame.raw_bytes) != frame.checksum) {
            fail(Status::corrupt,
                 "section at byte %llu (recurrent): its bytes do not give its checksum",
                 static_cast<Number>(ref.offset));
        }
        check_state_numbers(index, numbers, parallel);
    };
    naming(input_.path(), [&] { naming(state_name(state(), index), read); });
}

void Snapshot::read_states(State &into, const Watch &watch, const Parallel &parallel) const {
    for (size_t i = 0; i < into.states.size() && keep() == Keep::full; ++i) {
        watch.step(i * state_bytes(state()), into.states.size() * state_bytes(state()));
        const std::shared_ptr<float[]> numbers(new float[state().recurrent.numbers()]);
        read_state(i, numbers.get(), parallel);
        into.states[i].data = numbers.get();
        into.storage.push_back(numbers);
    }
}

} // namespace stasis::format
