// Finishes queries, keys and values; see heads.h.
#include "runtime/compute/cpu/heads.h"

#include <algorithm>
#include <array>

#include "format/state/bf16.h"
#include "runtime/compute/cpu/rows.h"
#include "runtime/model/rope.h"

namespace stasis {

namespace {

// Reorders a head whose RoPE pairs are interleaved into first halves and second halves.
void part_pairs(float *head, size_t head_dim) {
    float pairs[kHeadDimMax];
    std::copy_n(head, head_dim, pairs);
    for (size_t i = 0; i < head_dim / 2; ++i) {
        head[i] = pairs[2 * i];
        head[head_dim / 2 + i] = pairs[2 * i + 1];
    }
}

// A layer's sizes and weights.
struct Heads {
    const Network &network;
    const LayerConfig &kind;
    const LayerWeights &weights;
    LayerPlace place;
    size_t heads, kv_heads, head_dim, rotary;

    Heads(const Network &network_, size_t layer)
        : network(network_), kind(network.config.layer[layer]),
          weights(network.weights.layers[layer]), place(network.layer_places[layer]),
          heads(network.config.heads), kv_heads(network.config.kv_heads_of(kind)),
          head_dim(network.config.head_dim_of(kind)),
          rotary(network.config.rotary_of(network.config.ropes[kind.rope])) {}

    // Numbers of a query in the scratch, of which the output gate may follow.
    size_t query_dim() const { return network.config.output_gate ? 2 * head_dim : head_dim; }
};

// What the heads of a row have in common.
struct HeadsOfRow {
    const float *norm;          // of each head; null: none
    const float *cosine, *sine; // [rotary / 2]
    float scale = 1.0F;         // after RoPE
};

// Applies the norm (where the architecture has one), RoPE and rounding to one head.
void finish_head(const Heads &sizes, float *head, const HeadsOfRow &row, uint16_t *rounded) {
    const kernels::Table &table = *sizes.network.kernels;
    const Config &config = sizes.network.config;
    const size_t head_dim = sizes.head_dim;
    if (config.interleaved_rope) {
        part_pairs(head, head_dim);
    }
    if (row.norm != nullptr) {
        table.rms_norm(head, row.norm, head_dim, config.norm_eps, head);
    }
    table.rope(head, row.cosine, row.sine, sizes.rotary);
    if (row.scale != 1.0F) {
        table.embed_wide(head, row.scale, head_dim, head); // C5: each times the scale
    }
    table.round_bf16(head, head_dim, rounded);
}

// Applies the norms over all heads of the row together.
void norm_jointly(const Heads &sizes, float *query, float *key) {
    const kernels::Table &table = *sizes.network.kernels;
    const float eps = sizes.network.config.norm_eps;
    const size_t query_size = sizes.heads * sizes.head_dim;
    const size_t key_size = sizes.kv_heads * sizes.head_dim;
    table.rms_norm(query, sizes.weights.query_norm, query_size, eps, query);
    if (sizes.kind.own_keys()) {
        table.rms_norm(key, sizes.weights.key_norm, key_size, eps, key);
    }
}

// A norm without weights.
constexpr std::array<float, kHeadDimMax> kOnes = [] {
    std::array<float, kHeadDimMax> ones{};
    ones.fill(1.0F);
    return ones;
}();

// Applies the norm (where the architecture has one) and rounding to a value head. May change it.
void finish_value(const Heads &sizes, float *value, uint16_t *rounded) {
    const kernels::Table &table = *sizes.network.kernels;
    const Config &config = sizes.network.config;
    if (config.value_norm) {
        table.rms_norm(value, kOnes.data(), sizes.head_dim, config.norm_eps, value);
    }
    table.round_bf16(value, sizes.head_dim, rounded);
}

// Queries stay in scratch, grouped by their KV head.
void finish_queries(Pass &pass, const Heads &sizes, size_t row, const HeadsOfRow &queries) {
    const CpuScratch &work = *pass.cpu;
    const size_t group_heads = sizes.heads / sizes.kv_heads;
    for (size_t head = 0; head < sizes.heads; ++head) {
        const size_t kv_head = head / group_heads;
        uint16_t *rounded =
            work.query_bf16 +
            ((kv_head * pass.row_count + row) * group_heads + head % group_heads) * sizes.head_dim;
        finish_head(sizes, work.query + (row * sizes.heads + head) * sizes.query_dim(), queries,
                    rounded);
    }
}

// Keys and values go to the page of the position. Values that are keys are taken before these are
// changed.
void finish_keys(Pass &pass, const Heads &sizes, size_t row, const HeadsOfRow &keys) {
    CpuScratch &work = *pass.cpu;
    const uint64_t position = pass.position_of(row);
    const PageShape &shape = sizes.network.page_shapes[sizes.place.group];
    const size_t head_dim = sizes.head_dim, slot = position % kPage;
    const bool keys_as_values = sizes.network.config.keys_as_values(sizes.kind);
    uint16_t *page = pass.sequence_of(row).page(sizes.place.group, position);
    for (size_t head = 0; head < sizes.kv_heads; ++head) {
        const size_t from = (row * sizes.kv_heads + head) * head_dim;
        uint16_t *key = page + shape.offset(sizes.place.index, 0, head) + slot * head_dim;
        uint16_t *value = page + shape.offset(sizes.place.index, 1, head) + slot * head_dim;
        if (keys_as_values) {
            std::copy_n(work.key + from, head_dim, work.value + from);
        }
        finish_value(sizes, work.value + from, value);
        finish_head(sizes, work.key + from, keys, key);
        if (!all_finite_bf16(key, head_dim) || !all_finite_bf16(value, head_dim)) {
            work.bad[row] = 1;
        }
    }
}

} // namespace

void finish_heads(Pass &pass, size_t layer) {
    const Network &network = pass.network;
    const CpuScratch &work = *pass.cpu;
    const Config &config = network.config;
    const Heads sizes(network, layer);
    const size_t half = config.most_rotary() / 2;
    each_row(network, pass.row_count, [&](size_t row) {
        const size_t at = (sizes.kind.rope * work.rows + row) * half;
        const float *cosine = work.cosine + at, *sine = work.sine + at;
        HeadsOfRow queries{sizes.weights.query_norm, cosine, sine,
                           query_scale(config, pass.position_of(row))};
        HeadsOfRow keys{sizes.weights.key_norm, cosine, sine};
        if (config.joint_norms) {
            norm_jointly(sizes, work.query + row * sizes.heads * sizes.query_dim(),
                         work.key + row * sizes.kv_heads * sizes.head_dim);
            queries.norm = keys.norm = nullptr;
        }
        finish_queries(pass, sizes, row, queries);
        if (sizes.kind.own_keys()) {
            finish_keys(pass, sizes, row, keys);
        }
    });
    mark_failed(pass, layer);
}

} // namespace stasis
