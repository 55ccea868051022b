// Recurrent states (FORMAT.md, "Recurrent states"): the conditions on their shape, positions,
// references and numbers, and their stored form under a codec. Must not know files.
#pragma once

#include <cstddef>
#include <cstdint>

#include "format/codec.h"
#include "format/layout.h"
#include "format/state/error.h"
#include "format/state/state.h"

namespace stasis::format {

// Checks sizes, so that none overflows, and that layers exist and ascend; without layers all is 0.
// Throws Error(status).
void check_recurrent_shape(const State &state, Status status);
// Checks that the contract has a part for recurrent layers exactly if there are any, and that the
// states' positions ascend and end at the log's end. Throws Error(status).
void check_recurrent_states(const State &state, Status status);
// Checks the places and sizes of the states' sections in a file of `end` bytes: they are stored
// exactly if the file keeps numbers. Geometry and states must have been checked. Throws
// Error(corrupt).
void check_state_refs(const State &state, const Layout &layout, uint64_t end);

// Returns the bytes of the numbers of one state.
inline uint64_t state_bytes(const State &state) {
    return state.recurrent.numbers() * sizeof(float);
}
// Checks that the `count` numbers from index `begin` of a state's `numbers` on are finite (C9).
// Throws Error(status) that names layer and position.
void check_state_finite(const State &state, size_t index, const float *numbers, size_t begin,
                        size_t count, Status status);

// The stored form under zstd: the lower halves of all numbers, then their upper halves, which are
// bf16 numbers, as a coded run of this shape. A piece is a frame of the run and the lower halves of
// its numbers; any threads can code pieces independently. `stored` is aligned to 2 bytes.
RunShape halves_shape(size_t count);
size_t encoded_state_bound(size_t count);
void encode_state_piece(FrameCoder &coder, size_t count, size_t index, const float *numbers,
                        uint8_t *stored);
size_t close_state(size_t count, uint8_t *stored); // returns the stored bytes
// Throws Error(corrupt); any contents of `stored` are safe to decode.
void decode_state_piece(FrameCoder &coder, size_t count, size_t index, const uint8_t *stored,
                        size_t stored_bytes, float *numbers);

} // namespace stasis::format
