// Computes the layers' own inputs; see layer_inputs.h. Order of operations: transformers,
// modeling_gemma4.py (project_per_layer_inputs, Gemma4TextDecoderLayer).
#include "runtime/compute/cpu/layer_inputs.h"

#include <cmath>
#include <cstring>

#include "runtime/compute/cpu/products.h"
#include "runtime/compute/cpu/rows.h"
#include "runtime/model/f16.h"

namespace stasis {

namespace {

constexpr float kHalfRoot = 0x1.6a09e6p-1F; // 1 / sqrt(2)

// Returns the f32 closest to the square root of a count.
float root(size_t count) {
    return static_cast<float>(std::sqrt(static_cast<double>(count)));
}

// y = the numbers of a token for all layers, times scale (C6).
void look_up(const Network &network, uint32_t token, float scale, float *y) {
    const kernels::Table &table = *network.kernels;
    const Lookup &tokens = network.weights.inputs.tokens;
    const size_t count = network.config.layer_inputs_size();
    const uint8_t *row = tokens.rows + token * tokens.row_bytes;
    if (const std::optional<kernels::Quant> quant = quant_of(tokens.type)) {
        table.embed_quantized(*quant, row, scale, count, y);
        return;
    }
    if (tokens.type == DataType::f32) {
        std::memcpy(y, row, count * sizeof(float));
    } else {
        for (size_t i = 0; i < count; ++i) {
            uint16_t number;
            std::memcpy(&number, row + i * sizeof number, sizeof number);
            y[i] = tokens.type == DataType::f16 ? f16_to_f32(number) : kernels::bf16_to_f32(number);
        }
    }
    table.embed_wide(y, scale, count, y);
}

} // namespace

void make_inputs(Pass &pass) {
    const Network &network = pass.network;
    const Config &config = network.config;
    const kernels::Table &table = *network.kernels;
    const LayerInputs &weights = network.weights.inputs;
    const CpuScratch &work = *pass.cpu;
    const size_t hidden = config.hidden, size = config.layer_inputs,
                 all = config.layer_inputs_size();
    each_row(network, pass.row_count, [&](size_t row) {
        table.round_bf16(work.stream + row * hidden, hidden, work.narrow + row * hidden);
    });
    pack(pass, work.narrow, pass.row_count, {&weights.projection});
    multiply_packed(pass, {{weights.projection, work.inputs}}, pass.row_count);

    const float token_scale = root(size), scale = 1.0F / root(hidden);
    network.threads->run(pass.row_count, 4, [&](size_t begin, size_t end, size_t thread) {
        float *token = work.token_inputs + thread * all;
        for (size_t row = begin; row < end; ++row) {
            float *inputs = work.inputs + row * all;
            table.embed_wide(inputs, scale, all, inputs);
            for (size_t layer = 0; layer < config.layers; ++layer) {
                float *own = inputs + layer * size;
                table.rms_norm(own, weights.norm, size, config.norm_eps, own);
            }
            look_up(network, pass.tokens[row], token_scale, token);
            table.add(token, all, inputs);
            table.embed_wide(inputs, kHalfRoot, all, inputs);
        }
    });
}

void apply_inputs(Pass &pass, size_t layer) {
    const Network &network = pass.network;
    const Config &config = network.config;
    const LayerInputWeights &weights = network.weights.layers[layer].inputs;
    const CpuScratch &work = *pass.cpu;
    const size_t size = config.layer_inputs;
    const kernels::Gate activate = kernels::gate_of(*network.kernels, config.activation);
    pack(pass, work.narrow, pass.row_count, {&weights.gate});
    multiply_packed(pass, {{weights.gate, work.wide}}, pass.row_count);
    each_row(network, pass.row_count, [&](size_t row) {
        const float *inputs = work.inputs + row * config.layer_inputs_size() + layer * size;
        activate(work.wide + row * size, inputs, size, work.narrow + row * size);
    });
    pack(pass, work.narrow, pass.row_count, {&weights.output});
    multiply_packed(pass, {{weights.output, work.wide}}, pass.row_count);
}

} // namespace stasis
