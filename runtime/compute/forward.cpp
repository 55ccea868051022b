// One forward pass for all architectures; see forward.h. Shapes: T rows (positions), H hidden,
// Q = heads * head_dim, K = kv_heads * head_dim, I intermediate, V vocabulary.
#include "runtime/compute/forward.h"

#include <algorithm>
#include <initializer_list>

#include "runtime/compute/device/forward.h"
#include "runtime/kernels/bf16.h"
#include "runtime/model/rope.h"

namespace stasis {

namespace {

// A matrix and where its product with the packed rows goes.
struct Product {
    const Matrix &w;
    float *y; // [T][w.rows]
};

// x [T][depth] into work.packed and work.quantized, as far as the matrices call for them, all of
// which have that depth.
void pack(const Network &network, Workspace &work, const uint16_t *x, size_t rows,
          std::initializer_list<const Matrix *> matrices) {
    const size_t depth = (*matrices.begin())->columns;
    QuantGroups groups;
    bool plain = false;
    for (const Matrix *matrix : matrices) {
        groups.add(*matrix);
        plain = plain || matrix->data != nullptr;
    }
    if (plain) {
        const kernels::Pack task{x, depth, rows, depth, work.packed};
        network.threads->run(rows, kernels::kPackRows, [&](size_t begin, size_t end) {
            network.kernels->pack(task, begin, end);
        });
    }
    for (const size_t group : {32, 256}) {
        if (group == 32 ? groups.by_32 : groups.by_256) {
            const kernels::Quantize task{x,     depth, rows,
                                         depth, group, work.quantized[group == 32 ? 0 : 1]};
            network.threads->run(rows, kernels::kPackRows, [&](size_t begin, size_t end) {
                network.kernels->quantize(task, begin, end);
            });
        }
    }
}

// y [T][count] = outputs begin .. begin + count - 1 of the product with the packed rows, plus bias.
void multiply(const Network &network, Workspace &work, const Matrix &w, size_t rows, size_t begin,
              size_t count, size_t thread, float *y, size_t y_stride) {
    void *scratch = work.scratch_of(thread);
    if (w.data != nullptr) {
        network.kernels->matmul({work.packed, w.data + begin * w.columns, w.columns, y, y_stride,
                                 rows, count, w.columns, scratch});
    } else {
        const uint8_t *strip =
            w.strips + begin / kernels::kStripOutputs * kernels::strip_bytes(w.quant, w.columns);
        const size_t group = kernels::quant_block(w.quant).elements;
        network.kernels->matmul_quantized({work.quantized[group == 32 ? 0 : 1], w.quant, strip, y,
                                           y_stride, rows, count, w.columns, scratch});
    }
    if (w.bias != nullptr) {
        for (size_t row = 0; row < rows; ++row) {
            network.kernels->add(w.bias + begin, count, y + row * y_stride);
        }
    }
}

// How the outputs of a product are cut into items for the threads, in a number that they share
// evenly: at multiples of what the tables compute side by side, kProductOutputs at most in each.
struct Items {
    static constexpr size_t kUnit = 32;
    static_assert(kUnit % kernels::kStripOutputs == 0 && kProductOutputs % (4 * kUnit) == 0);
    size_t outputs, units, count;

    Items(const Network &network, size_t outputs_, size_t rows)
        : outputs(outputs_), units((outputs + kUnit - 1) / kUnit) {
        constexpr size_t kSmallItemRows = 64; // bound by reading, and done soon: smaller items
        const size_t most = (rows > kSmallItemRows ? kProductOutputs : kProductOutputs / 4) / kUnit;
        const size_t threads = network.threads->count();
        count = threads * ((units + threads * most - 1) / (threads * most));
    }

    size_t begin(size_t item) const { return std::min(units * item / count * kUnit, outputs); }
};

// Products of the same packed rows with several matrices. Outputs are split over threads.
void project(const Network &network, Workspace &work, std::initializer_list<Product> products,
             size_t rows) {
    size_t total = 0;
    for (const Product &product : products) {
        total += Items(network, product.w.rows, rows).count;
    }
    network.threads->run(total, 1, [&](size_t item, size_t, size_t thread) {
        for (const Product &product : products) {
            const Items items(network, product.w.rows, rows);
            if (item < items.count) {
                const size_t begin = items.begin(item), end = items.begin(item + 1);
                multiply(network, work, product.w, rows, begin, end - begin, thread,
                         product.y + begin, product.w.rows);
                return;
            }
            item -= items.count;
        }
    });
}

// Calls work(row) for each of T rows, split over threads.
template <typename Work> void each_row(const Network &network, size_t rows, const Work &work) {
    network.threads->run(rows, 4, [&](size_t begin, size_t end) {
        for (size_t row = begin; row < end; ++row) {
            work(row);
        }
    });
}

// y [T][H] bf16 = rounded norm of the residual stream.
void norm_to_narrow(const Network &network, Workspace &work, const float *weight, size_t rows) {
    const size_t hidden = network.config.hidden;
    each_row(network, rows, [&](size_t row) {
        float *normed = work.wide + row * hidden;
        network.kernels->rms_norm(work.stream + row * hidden, weight, hidden,
                                  network.config.norm_eps, normed);
        network.kernels->round_bf16(normed, hidden, work.narrow + row * hidden);
    });
}

// stream += wide, through a further norm where the architecture has one.
void add_to_stream(const Network &network, Workspace &work, const float *post_norm, size_t rows) {
    const size_t hidden = network.config.hidden;
    each_row(network, rows, [&](size_t row) {
        float *result = work.wide + row * hidden;
        if (post_norm != nullptr) {
            network.kernels->rms_norm(result, post_norm, hidden, network.config.norm_eps, result);
        }
        network.kernels->add(result, hidden, work.stream + row * hidden);
    });
}

bool finite_bf16(const uint16_t *x, size_t n) {
    bool finite = true;
    for (size_t i = 0; i < n; ++i) {
        finite &= kernels::is_finite_bf16(x[i]);
    }
    return finite;
}

// Marks the sequences of rows that `work.bad` names, each where it first failed, and clears it.
void mark_failed(Workspace &work, size_t layer) {
    for (size_t row = 0; row < work.row_count; ++row) {
        if (work.bad[row] != 0) {
            work.sequence_of(row).fail_at(layer, work.position_of(row));
        }
        work.bad[row] = 0;
    }
}

bool all_failed(Workspace &work) {
    const std::span<Sequence> pass = work.pass();
    return std::all_of(pass.begin(), pass.end(), [](const Sequence &s) { return s.failed; });
}

// Puts the halves of a head's pairs, which lie side by side, where rope expects them.
void part_pairs(float *head, size_t head_dim) {
    float pairs[kHeadDimMax];
    std::copy_n(head, head_dim, pairs);
    for (size_t i = 0; i < head_dim / 2; ++i) {
        head[i] = pairs[2 * i];
        head[head_dim / 2 + i] = pairs[2 * i + 1];
    }
}

// Norm (where the architecture has one), rope and rounding of one head.
void finish_head(const Network &network, float *head, const float *norm, const float *cosine,
                 const float *sine, uint16_t *rounded) {
    const size_t head_dim = network.config.head_dim;
    if (network.config.interleaved_rope) {
        part_pairs(head, head_dim);
    }
    if (norm != nullptr) {
        network.kernels->rms_norm(head, norm, head_dim, network.config.norm_eps, head);
    }
    network.kernels->rope(head, cosine, sine, head_dim);
    network.kernels->round_bf16(head, head_dim, rounded);
}

// Finishes the queries, keys and values of one layer: queries to query_bf16, keys and values into
// their pages. Marks sequences that failed.
void store_heads(const Network &network, Workspace &work, size_t layer) {
    const Config &config = network.config;
    const LayerWeights &weights = network.weights.layers[layer];
    const LayerPlace place = network.layer_places[layer];
    const PageShape &shape = network.page_shapes[place.group];
    const size_t head_dim = config.head_dim, half = head_dim / 2;
    const size_t group_heads = config.heads / config.kv_heads;
    const size_t rope_offset = config.layer[layer].rope * work.rows;
    const size_t rows = work.row_count;

    each_row(network, rows, [&](size_t row) {
        const uint64_t position = work.position_of(row);
        const size_t slot = position % kernels::kPagePositions;
        const float *cosine = work.cosine + (rope_offset + row) * half;
        const float *sine = work.sine + (rope_offset + row) * half;
        uint16_t *page = work.sequence_of(row).page(place.group, position);
        for (size_t head = 0; head < config.heads; ++head) {
            const size_t kv_head = head / group_heads;
            uint16_t *rounded =
                work.query_bf16 +
                ((kv_head * rows + row) * group_heads + head % group_heads) * head_dim;
            finish_head(network, work.query + (row * config.heads + head) * head_dim,
                        weights.query_norm, cosine, sine, rounded);
        }
        for (size_t head = 0; head < config.kv_heads; ++head) {
            const size_t from = (row * config.kv_heads + head) * head_dim;
            uint16_t *key = page + shape.offset(place.index, 0, head) + slot * head_dim;
            uint16_t *value = page + shape.offset(place.index, 1, head) + slot * head_dim;
            finish_head(network, work.key + from, weights.key_norm, cosine, sine, key);
            network.kernels->round_bf16(work.value + from, head_dim, value);
            if (!finite_bf16(key, head_dim) || !finite_bf16(value, head_dim)) {
                work.bad[row] = 1;
            }
        }
    });
    mark_failed(work, layer);
}

void attention_part(const Network &network, Workspace &work, size_t layer) {
    const size_t rows = work.row_count;
    const LayerWeights &weights = network.weights.layers[layer];
    norm_to_narrow(network, work, weights.attention_norm, rows); // [T][H]
    pack(network, work, work.narrow, rows, {&weights.query, &weights.key, &weights.value});
    project(network, work,
            {{weights.query, work.query}, {weights.key, work.key}, {weights.value, work.value}},
            rows); // [T][Q], [T][K] twice
    store_heads(network, work, layer);
    attend(network, work, layer, work.narrow); // [T][Q]
    pack(network, work, work.narrow, rows, {&weights.output});
    project(network, work, {{weights.output, work.wide}}, rows); // [T][H]
    add_to_stream(network, work, weights.post_attention_norm, rows);
}

// narrow [T][I] = activation(gate) * up, from work.packed.
void gated_product(const Network &network, Workspace &work, const LayerWeights &weights,
                   size_t rows) {
    const size_t inner = network.config.intermediate;
    const Items items(network, inner, rows);
    const auto activate = network.config.activation == Activation::silu
                              ? network.kernels->silu_gate
                              : network.kernels->gelu_gate;
    network.threads->run(items.count, 1, [&](size_t item, size_t, size_t thread) {
        const size_t begin = items.begin(item), count = items.begin(item + 1) - begin;
        float *gate = work.gate_of(thread), *up = work.up_of(thread);
        multiply(network, work, weights.gate, rows, begin, count, thread, gate, count);
        multiply(network, work, weights.up, rows, begin, count, thread, up, count);
        for (size_t row = 0; row < rows; ++row) {
            activate(gate + row * count, up + row * count, count,
                     work.narrow + row * inner + begin);
        }
    });
}

void mlp_part(const Network &network, Workspace &work, size_t layer) {
    const size_t rows = work.row_count;
    const LayerWeights &weights = network.weights.layers[layer];
    norm_to_narrow(network, work, weights.mlp_norm, rows); // [T][H]
    pack(network, work, work.narrow, rows, {&weights.gate, &weights.up});
    gated_product(network, work, weights, rows); // [T][I]
    pack(network, work, work.narrow, rows, {&weights.down});
    project(network, work, {{weights.down, work.wide}}, rows); // [T][H]
    add_to_stream(network, work, weights.post_mlp_norm, rows);
}

void embed_token(const Network &network, uint32_t token, float *stream) {
    const Weights &weights = network.weights;
    const Matrix &embeddings = weights.embeddings;
    const size_t hidden = embeddings.columns, from = size_t{token} * hidden;
    const float scale = network.config.embedding_scale;
    if (weights.embedding_blocks != nullptr) {
        const size_t row_bytes = kernels::quant_row_bytes(embeddings.quant, hidden);
        network.kernels->embed_quantized(
            embeddings.quant, weights.embedding_blocks + token * row_bytes, scale, hidden, stream);
    } else if (weights.wide_embeddings != nullptr) {
        network.kernels->embed_wide(weights.wide_embeddings + from, scale, hidden, stream);
    } else {
        network.kernels->embed(embeddings.data + from, scale, hidden, stream);
    }
}

void embed_and_rope(const Network &network, Workspace &work) {
    const Config &config = network.config;
    const size_t half = config.head_dim / 2;
    each_row(network, work.row_count, [&](size_t row) {
        embed_token(network, work.tokens[row], work.stream + row * config.hidden);
        for (size_t rope = 0; rope < config.ropes.size(); ++rope) {
            const size_t at = (rope * work.rows + row) * half;
            rope_row(network.rope_frequencies[rope], work.position_of(row), work.cosine + at,
                     work.sine + at);
        }
    });
}

} // namespace

void forward(const Network &network, Workspace &work, const Watch &watch, uint64_t done,
             uint64_t total) {
    if (network.device != nullptr) {
        forward_on_device(network, work, watch, done, total);
        return;
    }
    const Config &config = network.config;
    plan_attention(network, work);
    embed_and_rope(network, work); // [T][H]
    for (size_t layer = 0; layer < config.layers; ++layer) {
        watch.look(done, total);
        attention_part(network, work, layer);
        if (all_failed(work)) {
            return;
        }
        mlp_part(network, work, layer);
    }
    // Every row, so that failing does not depend on how tokens are cut (C9).
    each_row(network, work.row_count, [&](size_t row) {
        const size_t at = row * config.hidden;
        network.kernels->rms_norm(work.stream + at, network.weights.final_norm, config.hidden,
                                  config.norm_eps, work.wide + at);
        network.kernels->round_bf16(work.wide + at, config.hidden, work.hidden + at);
        work.bad[row] = finite_bf16(work.hidden + at, config.hidden) ? 0 : 1;
    });
    mark_failed(work, config.layers);
}

void fail_sequence(const Network &network, const Sequence &sequence) {
    const auto position = static_cast<Number>(sequence.failed_position);
    if (sequence.failed_layer < network.config.layers) {
        fail(Status::nonfinite, "non-finite key or value in layer %zu at position %llu",
             sequence.failed_layer, position);
    }
    fail(Status::nonfinite, "non-finite final hidden state (after layer %u) at position %llu",
         network.config.layers - 1, position);
}

void project_logits(const Network &network, Workspace &work, const uint16_t *hidden, size_t rows,
                    float *logits) {
    if (network.device != nullptr) {
        project_on_device(network, work, hidden, rows, logits);
        return;
    }
    pack(network, work, hidden, rows, {&network.weights.head});
    project(network, work, {{network.weights.head, logits}}, rows); // [T][V]
    if (network.config.final_softcap != 0.0F) {
        const size_t count = rows * network.config.vocabulary;
        network.threads->run(count, 4096, [&](size_t begin, size_t end) {
            network.kernels->softcap(logits + begin, end - begin, network.config.final_softcap);
        });
    }
}

void check_logits(const Network &network, std::span<const float> row) {
    const size_t bad = network.kernels->find_nonfinite(row.data(), row.size());
    if (bad < row.size()) {
        fail(Status::nonfinite, "non-finite logit of token %zu", bad);
    }
}

} // namespace stasis
