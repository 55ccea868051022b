// Short convolutions, the recurrent layers of LFM2 (C11): of the products B, C and x of a row, B *
// x is convolved and multiplied by C. The state is the last inputs of the convolution.
#include "runtime/compute/cpu/recurrent_layer.h"

namespace stasis {

namespace {

constexpr size_t kChannels = 256; // that a thread convolves at a time

} // namespace

void gate_inputs(const RecurrentLayer &layer) {
    const size_t channels = layer.sizes.channels();
    layer.each(layer.rows, layer.rows, [&](size_t row, size_t) {
        const float *product = layer.work.gate_z + row * 3 * channels;
        layer.network.kernels->multiply(product, product + 2 * channels, channels,
                                        layer.mixed(row, 0));
    });
}

void convolve_gated(const RecurrentLayer &layer, Pass &pass) {
    const kernels::Table &table = *layer.network.kernels;
    const size_t channels = layer.sizes.channels();
    const size_t blocks = (channels + kChannels - 1) / kChannels;
    layer.each(layer.rows * blocks, blocks, [&](size_t item, size_t) {
        const size_t row = item / blocks, channel = item % blocks * kChannels;
        const size_t count = std::min(kChannels, channels - channel);
        const size_t rows = convolve(layer, pass.sequence_of(row), row, channel, count);
        for (size_t i = row; i < row + rows; ++i) {
            float *convolved = layer.work.convolved + layer.in_head(i, channel, count);
            const float *gate = layer.work.gate_z + (3 * i + 1) * channels + channel;
            table.multiply(convolved, gate, count, convolved);
            table.round_bf16(convolved, count, layer.work.narrow + i * channels + channel);
        }
    });
}

} // namespace stasis
