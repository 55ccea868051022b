// Recurrent layers, row after row (C11): here Gated DeltaNet, in selective_scan.cpp what Mamba-2
// has otherwise, and in short_convolution.cpp the layers without a rule. Threads share sequences,
// heads and columns of the states, which do not depend on each other; rows are never split.
#include "runtime/compute/cpu/recurrent.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <utility>

#include "runtime/compute/cpu/products.h"
#include "runtime/compute/cpu/recurrent_layer.h"

namespace stasis {

namespace {

// Columns of a head's state that are worked on at a time, between the rows of a pass in memory of
// their own: with 128 rows, 32 KiB that stay in the first cache.
constexpr size_t kColumns = 64;
static_assert(kColumns * kHeadDimMax * sizeof(float) <= kernels::kScratchBytes);
constexpr float kL2Eps = 1e-6F;
// Of so many bytes of states, or more, none is in a cache when it is read again: the weights of
// such a model, read in between, have many times as many.
constexpr size_t kFarBytes = size_t{4} << 20;

// The decay of each head of a row, and beta or the step, in the places of what they follow from.
void open_gates(const RecurrentLayer &layer, size_t row) {
    const Recurrent &sizes = layer.sizes;
    const kernels::Table &table = *layer.network.kernels;
    const RecurrentWeights &weights = layer.weights;
    const size_t heads = sizes.value_heads;
    float *decay = layer.work.decay + row * heads, *beta = layer.work.beta + row * heads;
    if (sizes.scan) {
        table.scan_gates(beta, weights.rate, weights.bias, sizes.step_least, sizes.step_most, heads,
                         decay, beta);
    } else {
        table.delta_gates(decay, beta, weights.rate, weights.bias, heads, decay, beta);
    }
}

// Queries, keys and values of each head, and the gates of all. Neighbouring heads of one row come
// one after the other, because their numbers do.
void prepare(const RecurrentLayer &layer, Pass &pass) {
    const Recurrent &sizes = layer.sizes;
    const kernels::Table &table = *layer.network.kernels;
    const size_t keys = 2 * size_t{sizes.key_heads}, heads = sizes.value_heads; // queries first
    const size_t items = keys + heads + 1;
    layer.each(layer.rows * items, items, [&](size_t at, size_t) {
        const size_t row = at / items, item = at % items;
        const Sequence &sequence = pass.sequence_of(row);
        if (item < keys) {
            const bool query = item < sizes.key_heads;
            const size_t channel =
                query ? layer.query_channel(item) : layer.key_channel(item - sizes.key_heads);
            const float factor = query ? layer.query_factor : 1.0F;
            const size_t rows = convolve(layer, sequence, row, channel, sizes.key_dim);
            for (size_t i = 0; i < rows && !sizes.scan; ++i) {
                float *head = layer.work.convolved + layer.in_head(row + i, channel, sizes.key_dim);
                table.l2_norm(head, sizes.key_dim, kL2Eps, factor, head);
            }
        } else if (item < keys + heads) {
            convolve(layer, sequence, row, layer.value_channel(item - keys), sizes.value_dim);
        } else {
            open_gates(layer, row);
        }
    });
}

// Some columns of a head's values, and the head whose keys it has.
struct Columns {
    size_t head, key_head, first;
};

// Sets the rows of the pass that the rule goes over. Results take the place of the convolution's
// inputs, which were kept.
void set_rows(const RecurrentLayer &layer, kernels::DeltaRule &task, const Columns &columns,
              size_t row, size_t rows) {
    const Recurrent &sizes = layer.sizes;
    const size_t value =
        layer.in_head(row, layer.value_channel(columns.head), sizes.value_dim) + columns.first;
    const auto key_place = [&](size_t channel) {
        return layer.work.convolved + layer.in_head(row, channel, sizes.key_dim);
    };
    task.query = key_place(layer.query_channel(columns.key_head));
    task.key = key_place(layer.key_channel(columns.key_head));
    task.value = layer.work.convolved + value;
    task.output = layer.work.mixed + value;
    task.decay = layer.work.decay + row * sizes.value_heads + columns.head;
    task.beta = layer.work.beta + row * sizes.value_heads + columns.head;
    task.rows = rows;
}

// The delta rule or the scan, of some columns of a head at a time, from state to state.
void apply_rule(const RecurrentLayer &layer) {
    const Recurrent &sizes = layer.sizes;
    const size_t blocks = (sizes.value_dim + kColumns - 1) / kColumns;
    const size_t items = sizes.value_heads * blocks;
    const size_t state_bytes = layer.network.recurrent_layers * sizes.state_size() * sizeof(float);
    const bool far = state_bytes >= kFarBytes;
    layer.each(layer.sequences.size() * items, 1, [&](size_t at, size_t thread) {
        const Sequence &sequence = layer.sequences[at / items];
        const size_t head = at % items / blocks, column = at % blocks * kColumns;
        const size_t key_head =
            sizes.tiled ? head % sizes.key_heads : head / (sizes.value_heads / sizes.key_heads);
        kernels::DeltaRule task;
        task.between = static_cast<float *>(layer.work.scratch_of(thread));
        task.qk_stride = sizes.key_dim;
        task.value_stride = sizes.value_dim;
        task.gate_stride = sizes.value_heads;
        task.state_stride = sizes.value_dim;
        task.key_dim = sizes.key_dim;
        task.columns = std::min<size_t>(kColumns, sizes.value_dim - column);
        task.far = far;
        task.skip = sizes.scan ? layer.weights.skip[head] : 0.0F;
        const auto rule =
            sizes.scan ? layer.network.kernels->selective_scan : layer.network.kernels->delta_rule;
        const size_t place =
            layer.state_at + sizes.inputs_size() + head * sizes.key_dim * sizes.value_dim + column;
        if (sequence.state == nullptr) {
            float *first = sequence.next_states.front().numbers + place;
            copy_block({sizes.key_dim, task.columns}, nullptr, 0, first, sizes.value_dim);
            task.before = first;
        } else {
            task.before = sequence.state + place;
        }
        size_t row = sequence.row;
        for (const Sequence::StateAfter &after : sequence.next_states) {
            const size_t end = sequence.row + after.rows;
            set_rows(layer, task, {head, key_head, column}, row, end - row);
            task.after = after.numbers + place;
            rule(task);
            task.before = task.after;
            row = end;
        }
    });
}

// The norm of each value head, and its gate z.
void finish_values(const RecurrentLayer &layer) {
    const Recurrent &sizes = layer.sizes;
    const kernels::Table &table = *layer.network.kernels;
    const float eps = layer.network.config.norm_eps;
    const size_t heads = sizes.value_heads, dim = sizes.value_dim;
    layer.each(layer.rows * heads, heads, [&](size_t item, size_t) {
        float *head =
            layer.work.mixed + layer.in_head(item / heads, layer.value_channel(item % heads), dim);
        table.rms_norm(head, layer.weights.norm, dim, eps, head);
        table.silu_gate(layer.work.gate_z + item * dim, head, dim, layer.work.narrow + item * dim);
    });
}

// Returns the numbers that are kept of a row of a layer.
size_t kept_size(const Recurrent &sizes) {
    const size_t gates = sizes.rule_size() == 0 ? 0 : sizes.scan ? 1 : 2;
    return sizes.channels() + gates * sizes.value_heads;
}

// Keeps the first rows of what a layer's states follow from, or puts them back.
void move_inputs(Pass &pass, size_t layer, size_t rows, bool keep) {
    const Network &network = pass.network;
    const Recurrent &sizes = network.config.recurrent;
    const CpuScratch &work = *pass.cpu;
    const size_t channels = sizes.channels(), heads = sizes.value_heads;
    const size_t first = network.layer_places[layer].index * pass.row_count;
    for (size_t row = 0; row < rows; ++row) {
        float *kept = work.kept + (first + row) * kept_size(sizes);
        const auto move = [&](float *numbers, size_t count) {
            std::memcpy(keep ? kept : numbers, keep ? numbers : kept, count * sizeof(float));
            kept += count;
        };
        move(work.mixed + row * channels, channels);
        if (sizes.rule_size() != 0) {
            move(work.beta + row * heads, heads);
        }
        if (sizes.rule_size() != 0 && !sizes.scan) {
            move(work.decay + row * heads, heads);
        }
    }
}

RecurrentLayer layer_of(const Pass &pass, size_t layer) {
    const Network &network = pass.network;
    const Recurrent &sizes = network.config.recurrent;
    const double factor = 1.0 / std::sqrt(static_cast<double>(sizes.key_dim));
    return {network,
            sizes,
            network.weights.layers[layer].recurrent,
            *pass.cpu,
            pass.all(),
            pass.row_count,
            network.layer_places[layer].index * sizes.state_size(),
            static_cast<float>(factor)};
}

} // namespace

void project_recurrent(Pass &pass, size_t layer) {
    const RecurrentWeights &weights = pass.network.weights.layers[layer].recurrent;
    const CpuScratch &work = *pass.cpu;
    if (weights.gate.rows == 0) { // one product
        pack(pass, work.narrow, pass.row_count, {&weights.input});
        multiply_packed(pass, {{weights.input, work.gate_z}}, pass.row_count);
        return;
    }
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
    const RecurrentLayer shared = layer_of(pass, layer);
    const bool ruled = shared.sizes.rule_size() != 0, scan = shared.sizes.scan;
    if (!ruled) {
        gate_inputs(shared);
    } else if (scan) {
        part_product(shared);
    }
    if (pass.keeps_inputs) {
        move_inputs(pass, layer, pass.row_count, true);
    }
    if (ruled) {
        prepare(shared, pass);
        apply_rule(shared);
        scan ? finish_scan(shared) : finish_values(shared);
    } else {
        convolve_gated(shared, pass);
    }
}

void keep_inputs(Pass &pass) {
    assert(pass.sequence_count == 1);
    const Network &network = pass.network;
    Buffer &storage = pass.cpu->kept_storage;
    storage.grow(network.recurrent_layers * pass.row_count * kept_size(network.config.recurrent) *
                 sizeof(float));
    pass.cpu->kept = static_cast<float *>(storage.data());
    pass.keeps_inputs = true;
}

void recur_again(Pass &pass, size_t rows) {
    Sequence &sequence = pass.sequences[0];
    assert(pass.keeps_inputs && pass.sequence_count == 1 && rows <= pass.row_count);
    assert(sequence.next_states.size() == 1);
    const size_t all = std::exchange(sequence.rows, rows);
    sequence.next_states[0].rows = rows;
    for (size_t layer = 0; layer < pass.network.config.layers; ++layer) {
        if (pass.network.config.layer[layer].recurrent) {
            move_inputs(pass, layer, rows, false);
            RecurrentLayer shared = layer_of(pass, layer);
            shared.rows = rows;
            if (shared.sizes.rule_size() == 0) {
                convolve_gated(shared, pass);
            } else {
                prepare(shared, pass);
                apply_rule(shared);
            }
        }
    }
    sequence.rows = sequence.next_states[0].rows = all;
}

} // namespace stasis
