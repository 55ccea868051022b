// One forward pass for all architectures; see forward.h. Shapes: T rows (positions), H hidden,
// Q = heads * head_dim, K = kv_heads * head_dim, I intermediate, V vocabulary.
#include "runtime/forward.h"

#include <algorithm>
#include <atomic>
#include <initializer_list>

#include "runtime/rope.h"

namespace stasis {

namespace {

// A matrix and where its product with the packed rows goes.
struct Product {
    const Matrix &w;
    float *y; // [T][w.rows]
};

// x [T][depth] into work.packed.
void pack(const Model &model, Workspace &work, const uint16_t *x, size_t rows, size_t depth) {
    const kernels::Pack task{x, depth, rows, depth, work.packed};
    model.threads->run(rows, kernels::kPackRows,
                       [&](size_t begin, size_t end) { model.kernels->pack(task, begin, end); });
}

// y [T][count] = outputs begin .. begin + count - 1 of the product with work.packed, plus bias.
void multiply(const Model &model, Workspace &work, const Matrix &w, size_t rows, size_t begin,
              size_t count, size_t thread, float *y, size_t y_stride) {
    model.kernels->matmul({work.packed, w.data + begin * w.columns, w.columns, y, y_stride, rows,
                           count, w.columns, work.scratch_of(thread)});
    if (w.bias != nullptr) {
        for (size_t row = 0; row < rows; ++row) {
            model.kernels->add(w.bias + begin, count, y + row * y_stride);
        }
    }
}

// How the outputs of a product are cut into items for the threads, in a number that they share
// evenly.
struct Items {
    size_t outputs;
    size_t count;

    Items(const Model &model, size_t outputs_, size_t rows) : outputs(outputs_) {
        constexpr size_t kRowsFew = 64; // bound by reading, and done soon: smaller items
        const size_t most = rows > kRowsFew ? kProductOutputs : kProductOutputs / 4;
        const size_t threads = model.threads->count();
        count = threads * ((outputs + threads * most - 1) / (threads * most));
    }

    // First output of an item, at a multiple of what the tables compute side by side.
    size_t begin(size_t item) const {
        constexpr size_t kMultiple = 32;
        return item == count ? outputs : outputs * item / count / kMultiple * kMultiple;
    }
};

// Products of the same packed rows with several matrices. Outputs are split over threads.
void project(const Model &model, Workspace &work, std::initializer_list<Product> products,
             size_t rows) {
    size_t total = 0;
    for (const Product &product : products) {
        total += Items(model, product.w.rows, rows).count;
    }
    model.threads->run(total, 1, [&](size_t item, size_t, size_t thread) {
        for (const Product &product : products) {
            const Items items(model, product.w.rows, rows);
            if (item < items.count) {
                const size_t begin = items.begin(item), end = items.begin(item + 1);
                multiply(model, work, product.w, rows, begin, end - begin, thread,
                         product.y + begin, product.w.rows);
                return;
            }
            item -= items.count;
        }
    });
}

// Calls work(row) for each of T rows, split over threads.
template <typename Work> void each_row(const Model &model, size_t rows, const Work &work) {
    model.threads->run(rows, 4, [&](size_t begin, size_t end) {
        for (size_t row = begin; row < end; ++row) {
            work(row);
        }
    });
}

// y [T][H] bf16 = rounded norm of the residual stream.
void norm_to_narrow(const Model &model, Workspace &work, const float *weight, size_t rows) {
    const size_t hidden = model.config.hidden;
    each_row(model, rows, [&](size_t row) {
        float *normed = work.wide + row * hidden;
        model.kernels->rms_norm(work.stream + row * hidden, weight, hidden, model.config.norm_eps,
                                normed);
        model.kernels->round_bf16(normed, hidden, work.narrow + row * hidden);
    });
}

// stream += wide, through a further norm where the architecture has one.
void add_to_stream(const Model &model, Workspace &work, const float *post_norm, size_t rows) {
    const size_t hidden = model.config.hidden;
    each_row(model, rows, [&](size_t row) {
        float *result = work.wide + row * hidden;
        if (post_norm != nullptr) {
            model.kernels->rms_norm(result, post_norm, hidden, model.config.norm_eps, result);
        }
        model.kernels->add(result, hidden, work.stream + row * hidden);
    });
}

bool finite_bf16(const uint16_t *x, size_t n) {
    bool finite = true;
    for (size_t i = 0; i < n; ++i) {
        finite &= (x[i] & 0x7F80U) != 0x7F80U;
    }
    return finite;
}

// The first of T rows that threads working on rows report as bad.
class FirstRow {
  public:
    explicit FirstRow(size_t rows) : rows_(rows), row_(rows) {}
    void report(size_t row) {
        size_t first = row_.load();
        while (row < first && !row_.compare_exchange_weak(first, row)) {
        }
    }
    bool found() const { return row_ != rows_; }
    size_t row() const { return row_; }

  private:
    const size_t rows_;
    std::atomic<size_t> row_;
};

// Norm (where the architecture has one), rope and rounding of one head.
void finish_head(const Model &model, float *head, const float *norm, const float *cosine,
                 const float *sine, uint16_t *rounded) {
    const size_t head_dim = model.config.head_dim;
    if (norm != nullptr) {
        model.kernels->rms_norm(head, norm, head_dim, model.config.norm_eps, head);
    }
    model.kernels->rope(head, cosine, sine, head_dim);
    model.kernels->round_bf16(head, head_dim, rounded);
}

// Finishes the queries, keys and values of one layer: queries to query_bf16, keys and values into
// their pages. Throws Error(nonfinite).
void store_heads(const Model &model, Workspace &work, size_t layer, uint64_t begin, size_t rows) {
    const Config &config = model.config;
    const LayerWeights &weights = model.weights.layers[layer];
    const LayerPlace place = model.layer_places[layer];
    const PageShape &shape = model.pool->shape(place.group);
    const size_t head_dim = config.head_dim, half = head_dim / 2;
    const size_t group_heads = config.heads / config.kv_heads;
    const size_t rope_offset = config.layer[layer].rope * work.rows;
    FirstRow bad(rows);

    each_row(model, rows, [&](size_t row) {
        const uint64_t position = begin + row;
        const size_t slot = position % kernels::kPagePositions;
        const float *cosine = work.cosine + (rope_offset + row) * half;
        const float *sine = work.sine + (rope_offset + row) * half;
        uint16_t *page = work.pages[place.group][position / kernels::kPagePositions -
                                                 work.first_page[place.group]];
        for (size_t head = 0; head < config.heads; ++head) {
            const size_t kv_head = head / group_heads;
            uint16_t *rounded =
                work.query_bf16 +
                ((kv_head * rows + row) * group_heads + head % group_heads) * head_dim;
            finish_head(model, work.query + (row * config.heads + head) * head_dim,
                        weights.query_norm, cosine, sine, rounded);
        }
        for (size_t head = 0; head < config.kv_heads; ++head) {
            const size_t from = (row * config.kv_heads + head) * head_dim;
            uint16_t *key = page + shape.offset(place.index, 0, head) + slot * head_dim;
            uint16_t *value = page + shape.offset(place.index, 1, head) + slot * head_dim;
            finish_head(model, work.key + from, weights.key_norm, cosine, sine, key);
            model.kernels->round_bf16(work.value + from, head_dim, value);
            if (!finite_bf16(key, head_dim) || !finite_bf16(value, head_dim)) {
                bad.report(row);
            }
        }
    });
    if (bad.found()) {
        fail(Status::nonfinite, "non-finite key or value in layer %zu at position %llu", layer,
             static_cast<unsigned long long>(begin + bad.row()));
    }
}

void attention_part(const Model &model, Workspace &work, size_t layer, uint64_t begin,
                    size_t rows) {
    const LayerWeights &weights = model.weights.layers[layer];
    norm_to_narrow(model, work, weights.attention_norm, rows); // [T][H]
    pack(model, work, work.narrow, rows, model.config.hidden);
    project(model, work,
            {{weights.query, work.query}, {weights.key, work.key}, {weights.value, work.value}},
            rows); // [T][Q], [T][K] twice
    store_heads(model, work, layer, begin, rows);
    attend(model, work, layer, begin, rows, work.narrow); // [T][Q]
    pack(model, work, work.narrow, rows, weights.output.columns);
    project(model, work, {{weights.output, work.wide}}, rows); // [T][H]
    add_to_stream(model, work, weights.post_attention_norm, rows);
}

// narrow [T][I] = activation(gate) * up, from work.packed.
void gated_product(const Model &model, Workspace &work, const LayerWeights &weights, size_t rows) {
    const size_t inner = model.config.intermediate;
    const Items items(model, inner, rows);
    const auto activate = model.config.activation == Activation::silu ? model.kernels->silu_gate
                                                                      : model.kernels->gelu_gate;
    model.threads->run(items.count, 1, [&](size_t item, size_t, size_t thread) {
        const size_t begin = items.begin(item), count = items.begin(item + 1) - begin;
        float *gate = work.gate_of(thread), *up = work.up_of(thread);
        multiply(model, work, weights.gate, rows, begin, count, thread, gate, count);
        multiply(model, work, weights.up, rows, begin, count, thread, up, count);
        for (size_t row = 0; row < rows; ++row) {
            activate(gate + row * count, up + row * count, count,
                     work.narrow + row * inner + begin);
        }
    });
}

void mlp_part(const Model &model, Workspace &work, size_t layer, size_t rows) {
    const LayerWeights &weights = model.weights.layers[layer];
    norm_to_narrow(model, work, weights.mlp_norm, rows); // [T][H]
    pack(model, work, work.narrow, rows, model.config.hidden);
    gated_product(model, work, weights, rows); // [T][I]
    pack(model, work, work.narrow, rows, model.config.intermediate);
    project(model, work, {{weights.down, work.wide}}, rows); // [T][H]
    add_to_stream(model, work, weights.post_mlp_norm, rows);
}

void embed_and_rope(const Model &model, Workspace &work, std::span<const uint32_t> tokens,
                    uint64_t begin) {
    const Config &config = model.config;
    const size_t half = config.head_dim / 2;
    each_row(model, tokens.size(), [&](size_t row) {
        const size_t from = size_t{tokens[row]} * config.hidden;
        float *stream = work.stream + row * config.hidden;
        if (model.weights.wide_embeddings != nullptr) {
            model.kernels->embed_wide(model.weights.wide_embeddings + from, config.embedding_scale,
                                      config.hidden, stream);
        } else {
            model.kernels->embed(model.weights.embeddings.data + from, config.embedding_scale,
                                 config.hidden, stream);
        }
        for (size_t rope = 0; rope < config.ropes.size(); ++rope) {
            const size_t at = (rope * work.rows + row) * half;
            rope_row(model.rope_frequencies[rope], begin + row, work.cosine + at, work.sine + at);
        }
    });
}

} // namespace

void forward(const Model &model, Workspace &work, std::span<const uint32_t> tokens,
             uint64_t begin) {
    const Config &config = model.config;
    const size_t rows = tokens.size();
    embed_and_rope(model, work, tokens, begin); // [T][H]
    for (size_t layer = 0; layer < config.layers; ++layer) {
        attention_part(model, work, layer, begin, rows);
        mlp_part(model, work, layer, rows);
    }
    FirstRow bad(rows); // every row, so that failing does not depend on how tokens are cut (C9)
    each_row(model, rows, [&](size_t row) {
        const size_t at = row * config.hidden;
        model.kernels->rms_norm(work.stream + at, model.weights.final_norm, config.hidden,
                                config.norm_eps, work.wide + at);
        model.kernels->round_bf16(work.wide + at, config.hidden, work.hidden + at);
        if (!finite_bf16(work.hidden + at, config.hidden)) {
            bad.report(row);
        }
    });
    if (bad.found()) {
        fail(Status::nonfinite, "non-finite final hidden state (after layer %u) at position %llu",
             config.layers - 1, static_cast<unsigned long long>(begin + bad.row()));
    }
}

void project_logits(const Model &model, Workspace &work, const uint16_t *hidden, float *logits) {
    pack(model, work, hidden, 1, model.config.hidden);
    project(model, work, {{model.weights.head, logits}}, 1); // [V]
    const size_t vocabulary = model.config.vocabulary;
    if (model.config.final_softcap != 0.0F) {
        model.threads->run(vocabulary, 4096, [&](size_t begin, size_t end) {
            model.kernels->softcap(logits + begin, end - begin, model.config.final_softcap);
        });
    }
    const size_t bad = model.kernels->find_nonfinite(logits, vocabulary);
    if (bad < vocabulary) {
        fail(Status::nonfinite, "non-finite logit of token %zu", bad);
    }
}

} // namespace stasis
