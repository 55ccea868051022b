// The convolution of recurrent layers, and their states' copies; see recurrent_layer.h.
#include "runtime/compute/cpu/recurrent_layer.h"

#include <cstring>

namespace stasis {

void copy_block(const Block &block, const float *from, size_t from_stride, float *to,
                size_t to_stride) {
    for (size_t row = 0; row < block.rows; ++row) {
        if (from == nullptr) {
            std::fill_n(to + row * to_stride, block.columns, 0.0F);
        } else if (from != to) {
            std::memcpy(to + row * to_stride, from + row * from_stride,
                        block.columns * sizeof(float));
        }
    }
}

namespace {

// Convolves some channels of the first rows of a sequence, which read the inputs that the state
// has, and puts the last inputs before each of the next states there. Returns the number of rows.
size_t convolve_first(const RecurrentLayer &layer, const Sequence &sequence, size_t channel,
                      size_t count) {
    const size_t width = layer.sizes.channels(), kept = layer.sizes.taps - 1;
    const size_t rows = std::min(kept, sequence.rows), at = layer.state_at + channel;
    // The last state takes the old inputs over, is read, and then takes the new ones.
    float *before = sequence.next_states.back().numbers + at;
    copy_block({kept, count}, sequence.state == nullptr ? nullptr : sequence.state + at, width,
               before, width);
    const float *x = layer.mixed(sequence.row, channel);
    float *y = layer.work.convolved + layer.in_head(sequence.row, channel, count);
    layer.network.kernels->convolve({x, before, layer.weights.convolution + channel, y, width,
                                     count, width, rows, count, layer.sizes.taps, layer.plain(),
                                     layer.convolution_bias(channel)});
    for (const Sequence::StateAfter &after : sequence.next_states) {
        for (size_t i = 0; i < kept; ++i) {
            const size_t from = after.rows + i; // in `before`, and behind its end in x
            std::memcpy(after.numbers + at + i * width,
                        from < kept ? before + from * width : x + (from - kept) * width,
                        count * sizeof(float));
        }
    }
    return rows;
}

} // namespace

size_t convolve(const RecurrentLayer &layer, const Sequence &sequence, size_t row, size_t channel,
                size_t count) {
    const size_t width = layer.sizes.channels(), kept = layer.sizes.taps - 1;
    if (row == sequence.row) {
        return convolve_first(layer, sequence, channel, count);
    }
    if (row < sequence.row + kept) {
        return 0;
    }
    float *y = layer.work.convolved + layer.in_head(row, channel, count);
    layer.network.kernels->convolve({layer.mixed(row, channel), layer.mixed(row - kept, channel),
                                     layer.weights.convolution + channel, y, width, count, width, 1,
                                     count, layer.sizes.taps, layer.plain(),
                                     layer.convolution_bias(channel)});
    return 1;
}

} // namespace stasis
