// Finding the states that the file has, and writing the others; see write_recurrent.h.
#include "format/write_recurrent.h"

#include <algorithm>
#include <memory>

#include "format/recurrent.h"

namespace stasis::format {

namespace {

// Memory for the state that is being written, handed from one to the next.
struct StateBuffers {
    std::unique_ptr<float[]> numbers; // unless they are in memory
    std::unique_ptr<uint8_t[]> coded;
};

const float *state_numbers(const SaveInput &input, size_t index, StateBuffers &buffers) {
    if (input.pages_in == nullptr) {
        return input.state.states[index].data;
    }
    if (buffers.numbers == nullptr) {
        buffers.numbers = std::make_unique_for_overwrite<float[]>(input.state.recurrent.numbers());
    }
    input.pages_in->read_state(index, buffers.numbers.get(), input.options.parallel);
    return buffers.numbers.get();
}

// Codes a state, all its pieces at once. What does not become smaller stays raw.
void encode(const SaveInput &input, const float *numbers, StateBuffers &buffers, FrameCoder &coder,
            Frame &frame) {
    const size_t count = input.state.recurrent.numbers();
    if (buffers.coded == nullptr) {
        buffers.coded = std::make_unique_for_overwrite<uint8_t[]>(encoded_state_bound(count));
    }
    for_each(input.options.parallel, frame_count(halves_shape(count)),
             [&](size_t i) { encode_state_piece(coder, count, i, numbers, buffers.coded.get()); });
    const size_t bytes = close_state(count, buffers.coded.get());
    if (bytes < frame.raw_bytes) { // never so small that a reader would refuse it: see lower halves
        frame.codec = Codec::zstd;
        frame.stored_bytes = bytes;
    }
}

} // namespace

std::vector<StateRef> states_in_file(const SaveInput &input) {
    std::vector<StateRef> refs(input.state.states.size());
    if (input.old == nullptr || input.options.keep == Keep::none ||
        input.old->state().recurrent != input.state.recurrent) {
        return refs;
    }
    const std::vector<RecurrentState> &there = input.old->state().states;
    for (size_t i = 0, j = 0; i < refs.size(); ++i) { // both ascend
        const RecurrentState &each = input.state.states[i];
        while (j < there.size() && there[j].position < each.position) {
            ++j;
        }
        if (j < there.size() && there[j].position == each.position &&
            there[j].digest == each.digest) {
            refs[i] = input.old->layout().states[j];
        }
    }
    return refs;
}

uint64_t missing_state_bytes(const SaveInput &input, const std::vector<StateRef> &refs) {
    const auto missing = std::count(refs.begin(), refs.end(), StateRef{});
    return input.options.keep == Keep::none
               ? 0
               : static_cast<uint64_t>(missing) * state_bytes(input.state);
}

void write_states(Output &output, const SaveInput &input, std::vector<StateRef> &refs) {
    FrameCoder coder;
    StateBuffers buffers;
    const uint64_t bytes = state_bytes(input.state);
    for (size_t i = 0; i < refs.size() && input.options.keep == Keep::full; ++i) {
        if (refs[i] != StateRef{}) {
            continue;
        }
        output.report();
        const float *const numbers = state_numbers(input, i, buffers);
        const size_t count = input.state.recurrent.numbers();
        for_each(input.options.parallel, recurrent_pieces(count), [&](size_t piece) {
            const size_t begin = piece * kRecurrentPiece;
            check_state_finite(input.state, i, numbers, begin,
                               std::min(kRecurrentPiece, count - begin), Status::invalid_argument);
        });
        Frame frame{SectionKind::recurrent,   Codec::raw,       bytes, bytes,
                    checksum(numbers, bytes), output.sequence()};
        if (input.options.codec == Codec::zstd) {
            encode(input, numbers, buffers, coder, frame);
        }
        const bool raw = frame.codec == Codec::raw;
        refs[i].offset =
            output.append(frame, raw ? static_cast<const void *>(numbers) : buffers.coded.get());
        refs[i].stored_bytes = frame.stored_bytes;
    }
}

} // namespace stasis::format
