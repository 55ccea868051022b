// Runs a forward pass step by step; see forward.h. Shapes: T rows (positions), H hidden, Q = heads
// * head_dim, K = kv_heads * head_dim, I intermediate.
#include "runtime/compute/forward.h"

#include <cassert>

#include "runtime/compute/backend.h"

namespace stasis {

void run_layers(Pass &pass, const Watch &watch, uint64_t done, uint64_t total) {
    const Backend &backend = *pass.network.backend;
    const Config &config = pass.network.config;

    backend.embed(pass); // stream [T][H]
    if (pass.network.joins_hidden) {
        backend.join(pass); // stream [T][H]
    }
    backend.residual(pass, After::embedding, 0); // normed [T][H]
    for (size_t layer = 0; layer < config.layers; ++layer) {
        watch.look(done, total);
        if (config.layer[layer].recurrent) {
            backend.project_recurrent(pass, layer);
            backend.recur(pass, layer); // [T][value_size]
        } else {
            backend.project_heads(pass, layer); // [T][Q], twice [T][K]
            backend.finish_heads(pass, layer);  // norms, RoPE; keys and values into pages
            if (pass.all_failed()) {
                return;
            }
            backend.attend(pass, layer); // [T][Q]
        }
        backend.project_output(pass, layer);             // [T][H]
        backend.residual(pass, After::attention, layer); // stream, and normed [T][H]

        const bool experts = config.layer[layer].experts;
        if (!experts || config.experts.beside_mlp) {
            backend.gated_product(pass, layer); // [T][I]
            backend.project_down(pass, layer);  // [T][H]
        }
        if (experts) {
            backend.run_experts(pass, layer); // [T][H]
        }
        backend.residual(pass, After::mlp, layer); // stream, and normed [T][H]
        if (config.layer_inputs != 0) {
            backend.apply_inputs(pass, layer);            // [T][H]
            backend.residual(pass, After::inputs, layer); // stream, and normed [T][H]
        }
    }
}

void forward(Pass &pass, const Watch &watch, uint64_t done, uint64_t total) {
    assert(pass.row_count > 0 && pass.row_count <= pass.rows);
    assert(pass.tokens.size() == pass.row_count);
    for (const Sequence &each : pass.all()) {
        if (pass.network.config.bidirectional && each.begin != 0) {
            fail(Status::unsupported,
                 "attention that looks both ways needs the whole text at once");
        }
    }
    pass.network.backend->run(pass, watch, done, total);
}

void fail_sequence(const Network &network, const Sequence &sequence) {
    assert(sequence.failed);
    const auto position = static_cast<Number>(sequence.failed_position);
    if (sequence.failed_layer < network.config.layers) {
        fail(Status::nonfinite,
             "non-finite key, value or router's logit in layer %zu at position %llu",
             sequence.failed_layer, position);
    }
    fail(Status::nonfinite, "non-finite final hidden state (after layer %u) at position %llu",
         network.config.layers - 1, position);
}

void project_logits(Pass &pass, const uint16_t *hidden, size_t rows, float *logits) {
    assert(rows <= pass.rows);
    pass.network.backend->logits(pass, hidden, rows, logits);
}

void check_logits(const Network &network, std::span<const float> row) {
    const size_t bad = network.kernels->find_nonfinite(row.data(), row.size());
    if (bad < row.size()) {
        fail(Status::nonfinite, "non-finite logit of token %zu", bad);
    }
}

} // namespace stasis
