// The CPU's backend: computes each step over the rows of a pass, split over threads, by the kernel
// table.
// See runtime/compute/backend.h for the shapes.
#include "runtime/compute/backend.h"

#include <algorithm>

#include "format/state/bf16.h"
#include "runtime/compute/cpu/attention.h"
#include "runtime/compute/cpu/experts.h"
#include "runtime/compute/cpu/heads.h"
#include "runtime/compute/cpu/layer_inputs.h"
#include "runtime/compute/cpu/products.h"
#include "runtime/compute/cpu/recurrent.h"
#include "runtime/compute/cpu/rows.h"
#include "runtime/compute/cpu/scratch.h"
#include "runtime/compute/forward.h"
#include "runtime/kernels/bf16.h"
#include "runtime/model/rope.h"

namespace stasis {

namespace {

void make_scratch(Pass &pass) {
    pass.cpu = std::make_unique<CpuScratch>(pass.network);
}

void fit_scratch(Pass &pass, size_t rows) {
    pass.cpu->fit(rows);
}

uint64_t scratch_bytes(const Pass &pass) {
    return pass.cpu->size_bytes();
}

// Any process may compute on the CPU.
void check_process(const Network &) {}

void run(Pass &pass, const Watch &watch, uint64_t done, uint64_t total) {
    plan_attention(pass);
    run_layers(pass, watch, done, total);
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

// Looks up the embeddings. Also computes what all layers use: the cosines and sines of RoPE, and
// the inputs of their own.
void embed(Pass &pass) {
    const Network &network = pass.network;
    const CpuScratch &work = *pass.cpu;
    const Config &config = network.config;
    const size_t half = config.most_rotary() / 2;
    each_row(network, pass.row_count, [&](size_t row) {
        embed_token(network, pass.tokens[row], work.stream + row * config.hidden);
        const auto &frequencies = pass.sequence_of(row).long_rope ? network.long_rope_frequencies
                                                                  : network.rope_frequencies;
        for (size_t rope = 0; rope < config.ropes.size(); ++rope) {
            const size_t at = (rope * work.rows + row) * half;
            rope_row(frequencies[rope], config.ropes[rope].amplitude, pass.position_of(row),
                     work.cosine + at, work.sine + at);
        }
    });
    if (config.layer_inputs != 0) {
        make_inputs(pass);
    }
}

// [norm(embedding), norm(hidden state)] times `join`, as vLLM's
// Qwen3NextMultiTokenPredictor.forward (vllm/model_executor/models/qwen3_next_mtp.py).
void join(Pass &pass) {
    const Network &network = pass.network;
    const MtpWeights &weights = network.weights.mtp;
    const kernels::Table &table = *network.kernels;
    const CpuScratch &work = *pass.cpu;
    const size_t hidden = network.config.hidden;
    const float eps = network.config.norm_eps;
    each_row(network, pass.row_count, [&](size_t row) {
        float *wide = work.wide + row * hidden;
        uint16_t *both = work.narrow + row * 2 * hidden;
        table.rms_norm(work.stream + row * hidden, weights.embedding_norm, hidden, eps, wide);
        table.round_bf16(wide, hidden, both);
        for (size_t i = 0; i < hidden; ++i) {
            wide[i] = kernels::bf16_to_f32(pass.previous[row * hidden + i]);
        }
        table.rms_norm(wide, weights.hidden_norm, hidden, eps, wide);
        table.round_bf16(wide, hidden, both + hidden);
    });
    pack(pass, work.narrow, pass.row_count, {&weights.join});
    multiply_packed(pass, {{weights.join, work.stream}}, pass.row_count);
}

// The norms around an addition to the stream.
struct Norms {
    const float *post;             // norm of the values added; null: none
    const float *next;             // norm of the stream; null: none
    bool last;                     // `next` is the final norm
    const float *scalar = nullptr; // before `next` the stream is multiplied by it; null: it is not
};

Norms norms_of(const Network &network, After after, size_t layer) {
    const std::vector<LayerWeights> &layers = network.weights.layers;
    switch (after) {
    case After::embedding:
        return {nullptr, layers[0].attention_norm, false};
    case After::attention:
        return {layers[layer].post_attention_norm, layers[layer].mlp_norm, false};
    case After::mlp:
        if (network.config.layer_inputs != 0) {
            return {layers[layer].post_mlp_norm, nullptr, false};
        }
        break;
    case After::inputs:
        break;
    }
    const bool last = layer + 1 == layers.size();
    return {after == After::mlp ? layers[layer].post_mlp_norm : layers[layer].inputs.post_norm,
            last ? network.weights.final_norm : layers[layer + 1].attention_norm, last,
            layers[layer].scalar};
}

void residual(Pass &pass, After after, size_t layer) {
    const Network &network = pass.network;
    const kernels::Table &table = *network.kernels;
    CpuScratch &work = *pass.cpu;
    const Norms norms = norms_of(network, after, layer);
    const size_t hidden = network.config.hidden;
    const float eps = network.config.norm_eps, scale = network.config.residual_scale;
    uint16_t *normed = norms.last ? pass.hidden : work.narrow;
    // One pass over each row, while it is in the cache: norm, add, norm, round.
    each_row(network, pass.row_count, [&](size_t row) {
        float *wide = work.wide + row * hidden, *stream = work.stream + row * hidden;
        if (norms.post != nullptr) {
            table.rms_norm(wide, norms.post, hidden, eps, wide);
        }
        if (after != After::embedding) {
            scale == 1.0F ? table.add(wide, hidden, stream)
                          : table.add_scaled(wide, scale, hidden, stream);
        }
        if (norms.scalar != nullptr) {
            table.embed_wide(stream, *norms.scalar, hidden, stream);
        }
        if (norms.next != nullptr) {
            table.rms_norm(stream, norms.next, hidden, eps, wide);
        }
        table.round_bf16(norms.next != nullptr ? wide : stream, hidden, normed + row * hidden);
        // Every row is checked, so that a failure does not depend on how the log was cut (C9).
        if (norms.last) {
            work.bad[row] = all_finite_bf16(normed + row * hidden, hidden) ? 0 : 1;
        }
    });
    if (norms.last) {
        mark_failed(pass, network.config.layers);
    }
}

void project_heads(Pass &pass, size_t layer) {
    const LayerWeights &weights = pass.network.weights.layers[layer];
    const Config &config = pass.network.config;
    const CpuScratch &work = *pass.cpu;
    if (!config.layer[layer].own_keys()) {
        pack(pass, work.narrow, pass.row_count, {&weights.query});
        multiply_packed(pass, {{weights.query, work.query}}, pass.row_count);
        return;
    }
    if (config.keys_as_values(config.layer[layer])) {
        pack(pass, work.narrow, pass.row_count, {&weights.query, &weights.key});
        multiply_packed(pass, {{weights.query, work.query}, {weights.key, work.key}},
                        pass.row_count);
        return;
    }
    pack(pass, work.narrow, pass.row_count, {&weights.query, &weights.key, &weights.value});
    multiply_packed(
        pass, {{weights.query, work.query}, {weights.key, work.key}, {weights.value, work.value}},
        pass.row_count);
}

void project_output(Pass &pass, size_t layer) {
    const LayerWeights &weights = pass.network.weights.layers[layer];
    const bool recurrent = pass.network.config.layer[layer].recurrent;
    const Matrix &w = recurrent ? weights.recurrent.output : weights.output;
    pack(pass, pass.cpu->narrow, pass.row_count, {&w});
    multiply_packed(pass, {{w, pass.cpu->wide}}, pass.row_count);
}

void gated_product(Pass &pass, size_t layer) {
    const Mlp &weights = pass.network.weights.layers[layer].mlp;
    pack(pass, pass.cpu->narrow, pass.row_count, {&weights.gate, &weights.up});
    multiply_gated(pass, weights, pass.row_count, pass.cpu->narrow);
}

void project_down(Pass &pass, size_t layer) {
    const Matrix &w = pass.network.weights.layers[layer].mlp.down;
    pack(pass, pass.cpu->narrow, pass.row_count, {&w});
    multiply_packed(pass, {{w, pass.cpu->wide}}, pass.row_count);
}

void mix_experts(Pass &pass, size_t layer) {
    run_experts(pass, layer);
    mark_failed(pass, layer);
}

void compute_logits(Pass &pass, const uint16_t *hidden, size_t rows, float *logits) {
    const Network &network = pass.network;
    pack(pass, hidden, rows, {&network.weights.head});
    multiply_packed(pass, {{network.weights.head, logits}}, rows);
    const size_t count = rows * network.config.vocabulary;
    if (network.config.logits_divisor != 1.0F) { // C6: times the reciprocal
        const auto scale =
            static_cast<float>(1.0 / static_cast<double>(network.config.logits_divisor));
        network.threads->run(count, 4096, [&](size_t begin, size_t end) {
            network.kernels->embed_wide(logits + begin, scale, end - begin, logits + begin);
        });
    }
    if (network.config.final_softcap != 0.0F) {
        network.threads->run(count, 4096, [&](size_t begin, size_t end) {
            network.kernels->softcap(logits + begin, end - begin, network.config.final_softcap);
        });
    }
}

bool draws_ahead(const Sampling &) {
    return false;
}

// Reports that the CPU has no device profile.
std::string open_profile(const Network &) {
    fail(Status::unsupported, "profile \"device\": device \"cpu\" has none");
}

} // namespace

const Backend kCpuBackend = {.make_scratch = make_scratch,
                             .fit = fit_scratch,
                             .size_bytes = scratch_bytes,
                             .check_process = check_process,
                             .run = run,
                             .embed = embed,
                             .join = join,
                             .residual = residual,
                             .project_heads = project_heads,
                             .finish_heads = finish_heads,
                             .attend = attend,
                             .project_recurrent = project_recurrent,
                             .recur = recur,
                             .keep_inputs = keep_inputs,
                             .recur_again = recur_again,
                             .project_output = project_output,
                             .gated_product = gated_product,
                             .project_down = project_down,
                             .run_experts = mix_experts,
                             .apply_inputs = apply_inputs,
                             .logits = compute_logits,
                             .draws_ahead = draws_ahead,
                             .draw_ahead = nullptr,
                             .open_profile = open_profile};

} // namespace stasis
