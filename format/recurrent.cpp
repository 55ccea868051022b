// The conditions on recurrent states, and their codec; see recurrent.h.
#include "format/recurrent.h"

#include <algorithm>
#include <bit>
#include <memory>

#include "format/constants.h"
#include "format/section.h"

namespace stasis::format {

namespace {

void check_layers(const State &state, Status status) {
    const std::vector<uint32_t> &layers = state.recurrent.layers;
    for (size_t i = 0; i < layers.size(); ++i) {
        if (layers[i] >= state.layers || (i > 0 && layers[i] <= layers[i - 1])) {
            fail(status, "recurrent layers: layer %u is out of range, twice or out of order",
                 layers[i]);
        }
    }
}

constexpr bool is_finite_f32(float number) {
    return (std::bit_cast<uint32_t>(number) & 0x7F800000) != 0x7F800000;
}

// The parts of a piece in the stored bytes.
struct Halves {
    RunShape shape;
    size_t begin, count; // numbers of the piece
    Halves(size_t numbers, size_t index)
        : shape(halves_shape(numbers)), begin(numbers_before(shape, index)),
          count(std::min(numbers, numbers_before(shape, index + 1)) - begin) {}
    size_t lower_bytes() const { return shape.bytes(); } // of all pieces
};

} // namespace

void check_recurrent_shape(const State &state, Status status) {
    const RecurrentShape &shape = state.recurrent;
    if (shape.layers.empty()) {
        if (shape != RecurrentShape()) {
            fail(status, "recurrent layers: none, but sizes of a state");
        }
        return;
    }
    check_layers(state, status);
    const bool keys = shape.key_heads != 0 || shape.key_dim != 0; // else short convolutions
    const auto possible = [](uint32_t size) { return size != 0 && size <= kGeometryMax; };
    for (const bool good :
         {!keys || possible(shape.key_heads), !keys || possible(shape.key_dim),
          possible(shape.value_heads), possible(shape.value_dim), possible(shape.taps)}) {
        if (!good) {
            fail(status, "recurrent layers: %u heads of %u and %u of %u, %u taps, expected 1 to %u",
                 shape.key_heads, shape.key_dim, shape.value_heads, shape.value_dim, shape.taps,
                 kGeometryMax);
        }
    }
    // Each product below is of numbers for which it fits 64 bits.
    if (shape.taps > kTapsMax || shape.state_size() > kRecurrentNumbersMax / shape.layers.size()) {
        fail(status,
             "recurrent layers: a state of %u heads of %u and %u of %u in %zu layers, %u taps, is "
             "too large",
             shape.key_heads, shape.key_dim, shape.value_heads, shape.value_dim,
             shape.layers.size(), shape.taps);
    }
}

void check_recurrent_states(const State &state, Status status) {
    const bool any = !state.recurrent.layers.empty();
    if (any != (state.contract.recurrent != 0)) {
        fail(status, "recurrent layers: %zu of them, under version %u of their contract",
             state.recurrent.layers.size(), state.contract.recurrent);
    }
    if (any && !state.evictions.empty()) {
        fail(status, "recurrent layers: positions were evicted, which is impossible in them");
    }
    uint64_t before = 0; // nothing is kept of position 0
    for (const RecurrentState &each : state.states) {
        if (!any || each.position <= before || each.position > state.log.size()) {
            fail(status,
                 "recurrent states: one at position %llu, expected one behind %llu, in a log of "
                 "%zu, of %zu recurrent layers",
                 static_cast<Number>(each.position), static_cast<Number>(before), state.log.size(),
                 state.recurrent.layers.size());
        }
        before = each.position;
    }
    if (any && before != state.log.size()) {
        fail(status, "recurrent states: the last one is at position %llu, the log ends at %zu",
             static_cast<Number>(before), state.log.size());
    }
}

void check_state_refs(const State &state, const Layout &layout, uint64_t end) {
    uint64_t left = end; // together they cannot be longer than the file
    for (size_t i = 0; i < layout.states.size(); ++i) {
        const StateRef &ref = layout.states[i];
        const auto position = static_cast<Number>(state.states[i].position);
        if (layout.keep == Keep::none ? ref != StateRef{} : ref.offset == 0) {
            fail(Status::corrupt, "recurrent state at position %llu: %s", position,
                 layout.keep == Keep::none ? "stored in a file that keeps none"
                                           : "not stored in a file that keeps states");
        }
        const bool placed = ref.offset >= kSectionsBegin && ref.offset % kAlignment == 0 &&
                            ref.offset < end && end - ref.offset >= kFrameBytes &&
                            ref.stored_bytes <= end - ref.offset - kFrameBytes;
        // See kCodecRatioMax: a reader allocates raw bytes in proportion to stored ones.
        if (ref.offset != 0 && (!placed || ref.stored_bytes > left ||
                                state_bytes(state) / kCodecRatioMax > ref.stored_bytes)) {
            fail(Status::corrupt,
                 "recurrent state at position %llu: %llu bytes in %llu stored ones at byte %llu, "
                 "in a file of %llu bytes",
                 position, static_cast<Number>(state_bytes(state)),
                 static_cast<Number>(ref.stored_bytes), static_cast<Number>(ref.offset),
                 static_cast<Number>(end));
        }
        left -= ref.stored_bytes;
    }
}

void check_state_finite(const State &state, size_t index, const float *numbers, size_t begin,
                        size_t count, Status status) {
    const float *const first = numbers + begin;
    if (all_finite(first, count)) {
        return;
    }
    const auto at =
        static_cast<size_t>(std::find_if_not(first, first + count, is_finite_f32) - numbers);
    const RecurrentShape &shape = state.recurrent;
    fail(status,
         "recurrent state at position %llu: the f32 bits %08x in layer %u, index %llu, are not a "
         "finite number",
         static_cast<Number>(state.states[index].position), std::bit_cast<uint32_t>(numbers[at]),
         shape.layers[at / shape.state_size()], static_cast<Number>(at % shape.state_size()));
}

RunShape halves_shape(size_t count) {
    return {count, 1, 1};
}

size_t encoded_state_bound(size_t count) {
    return halves_shape(count).bytes() + encoded_bound(halves_shape(count));
}

void encode_state_piece(FrameCoder &coder, size_t count, size_t index, const float *numbers,
                        uint8_t *stored) {
    const Halves piece(count, index);
    const auto upper = std::make_unique_for_overwrite<uint16_t[]>(piece.count);
    auto *const lower = reinterpret_cast<uint16_t *>(stored) + piece.begin;
    split_halves(numbers + piece.begin, piece.count, upper.get(), lower);
    coder.encode_frame(piece.shape, index, upper.get(), stored + piece.lower_bytes());
}

size_t close_state(size_t count, uint8_t *stored) {
    const RunShape shape = halves_shape(count);
    return shape.bytes() + close_run(shape, stored + shape.bytes());
}

void decode_state_piece(FrameCoder &coder, size_t count, size_t index, const uint8_t *stored,
                        size_t stored_bytes, float *numbers) {
    const Halves piece(count, index);
    if (stored_bytes < piece.lower_bytes()) {
        fail(Status::corrupt, "coded state: %zu bytes, the lower halves of %zu numbers take %zu",
             stored_bytes, count, piece.lower_bytes());
    }
    const auto upper = std::make_unique_for_overwrite<uint16_t[]>(piece.count);
    const auto *const lower = reinterpret_cast<const uint16_t *>(stored) + piece.begin;
    coder.decode_frame(piece.shape, index, stored + piece.lower_bytes(),
                       stored_bytes - piece.lower_bytes(), upper.get());
    join_halves(upper.get(), lower, piece.count, numbers + piece.begin);
}

} // namespace stasis::format
