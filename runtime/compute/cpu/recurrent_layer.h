// What the steps of a recurrent layer (C11) share on the CPU: places of its numbers, and the
// convolution, which every kind of layer has. Included by recurrent.cpp, short_convolution.cpp,
// selective_scan.cpp and recurrent_layer.cpp only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "runtime/compute/cpu/scratch.h"
#include "runtime/compute/network.h"
#include "runtime/compute/pass.h"

namespace stasis {

// What the steps of one layer share.
struct RecurrentLayer {
    const Network &network;
    const Recurrent &sizes;
    const RecurrentWeights &weights;
    const CpuScratch &work;
    std::span<const Sequence> sequences;
    size_t rows;        // of the pass
    size_t state_at;    // of this layer in a sequence's states
    float query_factor; // 1 / sqrt(key_dim)

    // A row of the convolution's inputs, from a channel on.
    float *mixed(size_t row, size_t channel) const {
        return work.mixed + row * sizes.channels() + channel;
    }
    // A row of a head of `dim` channels, after the convolution: [head][rows][dim], so that the
    // delta rule of a head reads numbers one after the other. What it gives has the same places.
    size_t in_head(size_t row, size_t channel, size_t dim) const {
        return channel * rows + row * dim;
    }
    bool plain() const { return sizes.rule_size() == 0; } // convolves without silu
    const float *convolution_bias(size_t channel) const {
        return weights.convolution_bias == nullptr ? nullptr : weights.convolution_bias + channel;
    }
    size_t value_channel(size_t head) const {
        return (sizes.scan ? 0 : 2 * sizes.key_size()) + head * sizes.value_dim;
    }
    size_t key_channel(size_t head) const {
        return (sizes.scan ? sizes.value_size() : sizes.key_size()) + head * sizes.key_dim;
    }
    size_t query_channel(size_t head) const {
        return (sizes.scan ? sizes.value_size() + sizes.key_size() : 0) + head * sizes.key_dim;
    }
    // Splits `items` over the threads, consecutive ones to the same.
    template <typename Work> void each(size_t items, size_t most, const Work &work_on) const {
        const size_t grain = std::clamp<size_t>(items / (4 * network.threads->count()), 1, most);
        network.threads->run(items, grain, [&](size_t begin, size_t end, size_t thread) {
            for (size_t item = begin; item < end; ++item) {
                work_on(item, thread);
            }
        });
    }
};

// A part of a state: `rows` of `columns` numbers each.
struct Block {
    size_t rows, columns;
};

// Copies a block; zeros if there is none to copy.
void copy_block(const Block &block, const float *from, size_t from_stride, float *to,
                size_t to_stride);

// Convolves some channels of a row; the first of a sequence stands for all that read the state, and
// leaves the last inputs to the next state. Returns the number of rows.
size_t convolve(const RecurrentLayer &layer, const Sequence &sequence, size_t row, size_t channel,
                size_t count);

// selective_scan.cpp: Mamba-2. Puts the parts of the product where the other layers have theirs,
// but for z, which stays.
void part_product(const RecurrentLayer &layer);
// Leaves the norm of the gated results of the scan in `narrow`.
void finish_scan(const RecurrentLayer &layer);

// short_convolution.cpp: the layers without a delta rule. Multiplies B and x, which gives the
// inputs of the convolution.
void gate_inputs(const RecurrentLayer &layer);
// Convolves them, and leaves C times the results in `narrow`, and the next states.
void convolve_gated(const RecurrentLayer &layer, Pass &pass);

} // namespace stasis
