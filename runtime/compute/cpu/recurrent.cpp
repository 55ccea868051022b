// Gated DeltaNet, row after row (C11). Threads share sequences, heads and columns of the states,
// which do not depend on each other; rows are never split.
#include "runtime/compute/cpu/recurrent.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/compute/cpu/products.h"
#include "runtime/compute/cpu/scratch.h"
#include "runtime/compute/network.h"

namespace stasis {

namespace {

// Columns of a head's state that are worked on at a time. With 128 rows they fill 32 KiB, which
// stay in the first cache from one row of the pass to the next.
constexpr size_t kColumns = 64;
constexpr float kL2Eps = 1e-6F;

// What the steps of one layer share.
struct Layer {
    const Network &network;
    const Recurrent &sizes;
    const RecurrentWeights &weights;
    const CpuScratch &work;
    std::span<const Sequence> sequences;
    size_t state_at;    // of this layer in a sequence's states
    float query_factor; // 1 / sqrt(key_dim)

    // Rows of a sequence, from a channel on: before the convolution, and after it.
    float *mixed(const Sequence &sequence, size_t channel) const {
        return work.mixed + sequence.row * sizes.channels() + channel;
    }
    float *convolved(const Sequence &sequence, size_t channel) const {
        return work.convolved + sequence.row * sizes.channels() + channel;
    }
    size_t value_channel(size_t head) const {
        return 2 * sizes.key_size() + head * sizes.value_dim;
    }

    // Calls work(sequence, item) for the items of every sequence, split over threads.
    template <typename Work> void each(size_t items, const Work &work_on) const {
        const size_t total = sequences.size() * items;
        const size_t grain = std::clamp<size_t>(total / (4 * network.threads->count()), 1, 16);
        network.threads->run(total, grain, [&](size_t begin, size_t end) {
            for (size_t i = begin; i < end; ++i) {
                work_on(sequences[i / items], i % items);
            }
        });
    }
};

// Copies part of the state before the pass to the state after it, `at` floats from the layer's
// begin; zeros at the beginning of the log. The kernels then work on the latter.
float *carry_state(const Layer &layer, const Sequence &sequence, size_t at, size_t rows,
                   size_t columns, size_t stride) {
    float *to = sequence.next_state + layer.state_at + at;
    if (sequence.state == sequence.next_state) {
        return to;
    }
    for (size_t row = 0; row < rows; ++row) {
        if (sequence.state == nullptr) {
            std::fill_n(to + row * stride, columns, 0.0F);
        } else {
            std::memcpy(to + row * stride, sequence.state + layer.state_at + at + row * stride,
                        columns * sizeof(float));
        }
    }
    return to;
}

// Convolves some channels, and keeps the last inputs for the next pass.
void convolve(const Layer &layer, const Sequence &sequence, size_t channel, size_t count) {
    const size_t width = layer.sizes.channels(), kept = layer.sizes.taps - 1;
    float *before = carry_state(layer, sequence, channel, kept, count, width);
    const float *x = layer.mixed(sequence, channel);
    layer.network.kernels->convolve({x, before, layer.weights.convolution + channel,
                                     layer.convolved(sequence, channel), width, width, width,
                                     sequence.rows, count, layer.sizes.taps});
    for (size_t i = 0; i < kept; ++i) {
        const size_t at = sequence.rows + i; // in `before`, and behind its end in x
        const float *from = at < kept ? before + at * width : x + (at - kept) * width;
        std::memcpy(before + i * width, from, count * sizeof(float));
    }
}

void normalise(const Layer &layer, const Sequence &sequence, size_t channel, float factor) {
    for (size_t row = 0; row < sequence.rows; ++row) {
        float *head = layer.convolved(sequence, channel) + row * layer.sizes.channels();
        layer.network.kernels->l2_norm(head, layer.sizes.key_dim, kL2Eps, factor, head);
    }
}

void open_gates(const Layer &layer, const Sequence &sequence) {
    const size_t heads = layer.sizes.value_heads;
    for (size_t row = sequence.row; row < sequence.row + sequence.rows; ++row) {
        float *decay = layer.work.decay + row * heads, *beta = layer.work.beta + row * heads;
        layer.network.kernels->delta_gates(decay, beta, layer.weights.rate, layer.weights.bias,
                                           heads, decay, beta);
    }
}

// Queries, keys and values of each head, and the gates of all.
void prepare(const Layer &layer) {
    const Recurrent &sizes = layer.sizes;
    const size_t keys = 2 * size_t{sizes.key_heads}; // queries come first
    layer.each(keys + sizes.value_heads + 1, [&](const Sequence &sequence, size_t item) {
        if (item < keys) {
            const size_t channel = item * sizes.key_dim;
            convolve(layer, sequence, channel, sizes.key_dim);
            normalise(layer, sequence, channel, item < sizes.key_heads ? layer.query_factor : 1.0F);
        } else if (item < keys + sizes.value_heads) {
            convolve(layer, sequence, layer.value_channel(item - keys), sizes.value_dim);
        } else {
            open_gates(layer, sequence);
        }
    });
}

// The delta rule, of some columns of a head at a time. Results take the place of the convolution's
// inputs, which were kept.
void apply_rule(const Layer &layer) {
    const Recurrent &sizes = layer.sizes;
    const size_t blocks = (sizes.value_dim + kColumns - 1) / kColumns;
    layer.each(sizes.value_heads * blocks, [&](const Sequence &sequence, size_t item) {
        const size_t head = item / blocks, column = item % blocks * kColumns;
        const size_t key_head =
            sizes.tiled ? head % sizes.key_heads : head / (sizes.value_heads / sizes.key_heads);
        const size_t channel = layer.value_channel(head) + column;
        kernels::DeltaRule task;
        task.query = layer.convolved(sequence, key_head * sizes.key_dim);
        task.key = task.query + sizes.key_size();
        task.value = layer.convolved(sequence, channel);
        task.decay = layer.work.decay + sequence.row * sizes.value_heads + head;
        task.beta = layer.work.beta + sequence.row * sizes.value_heads + head;
        task.output = layer.mixed(sequence, channel);
        task.qk_stride = task.value_stride = sizes.channels();
        task.gate_stride = sizes.value_heads;
        task.state_stride = sizes.value_dim;
        task.rows = sequence.rows;
        task.key_dim = sizes.key_dim;
        task.columns = std::min<size_t>(kColumns, sizes.value_dim - column);
        const size_t at = sizes.inputs_size() + head * sizes.key_dim * sizes.value_dim + column;
        task.state = carry_state(layer, sequence, at, sizes.key_dim, task.columns, sizes.value_dim);
        layer.network.kernels->delta_rule(task);
    });
}

// The norm of each value head, and its gate z.
void finish_values(const Layer &layer, size_t rows) {
    const Recurrent &sizes = layer.sizes;
    const kernels::Table &table = *layer.network.kernels;
    const float eps = layer.network.config.norm_eps;
    const size_t heads = sizes.value_heads, dim = sizes.value_dim;
    layer.network.threads->run(rows * heads, 16, [&](size_t begin, size_t end) {
        for (size_t item = begin; item < end; ++item) {
            float *head = layer.work.mixed + item / heads * sizes.channels() +
                          layer.value_channel(item % heads);
            table.rms_norm(head, layer.weights.norm, dim, eps, head);
            table.silu_gate(layer.work.gate_z + item * dim, head, dim,
                            layer.work.narrow + item * dim);
        }
    });
}

} // namespace

void project_recurrent(Pass &pass, size_t layer) {
    const RecurrentWeights &weights = pass.network.weights.layers[layer].recurrent;
    const CpuScratch &work = *pass.cpu;
    pack(pass, work.narrow, pass.row_count,
         {&weights.input, &weights.gate, &weights.decay, &weights.beta});
    multiply_packed(pass,
                    {{weights.input, work.mixed},
                     {weights.gate, work.gate_z},
                     {weights.decay, work.decay},
                     {weights.beta, work.beta}},
                    pass.row_count);
}

void recur(Pass &pass, size_t layer) {
    const Network &network = pass.network;
    const Recurrent &sizes = network.config.recurrent;
    const double factor = 1.0 / std::sqrt(static_cast<double>(sizes.key_dim));
    const Layer shared{network,
                       sizes,
                       network.weights.layers[layer].recurrent,
                       *pass.cpu,
                       pass.all(),
                       network.layer_places[layer].index * sizes.state_size(),
                       static_cast<float>(factor)};
    prepare(shared);
    apply_rule(shared);
    finish_values(shared, pass.row_count);
}

} // namespace stasis
