// Plans the tensors of a file; see outputs.h. What GGUF files have otherwise than checkpoints is
// what llama.cpp's converter does to them (conversion/qwen.py for hybrids).
#include "runtime/quantize/outputs.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "format/state/error.h"
#include "runtime/model/family/family.h"
#include "runtime/model/gguf/checkpoint.h"

namespace stasis {

namespace {

bool has(const std::string &name, const char *part) {
    return name.find(part) != std::string::npos;
}

// For a model with fused matrices, such as Phi-3, GGUF files are fused too.
std::string fused_name(std::string name) {
    constexpr std::pair<const char *, const char *> kParts[] = {
        {".q_proj.", ".qkv_proj."},
        {".k_proj.", ".qkv_proj."},
        {".v_proj.", ".qkv_proj."},
        {".gate_proj.", ".gate_up_proj."},
        {"mlp.up_proj.", "mlp.gate_up_proj."},
    };
    for (const auto &[part, whole] : kParts) {
        const size_t at = name.find(part);
        if (at != std::string::npos) {
            return name.replace(at, std::string(part).size(), whole);
        }
    }
    return name;
}

// Sets the order of the value heads' rows or values, which follow the queries' and keys' in tensors
// of all channels.
void tile(const Recurrent &sizes, const std::string &name, EncodedSource &source) {
    const uint64_t each = sizes.value_heads / sizes.key_heads;
    EncodedOrder order{.unit = sizes.value_dim, .keys = sizes.key_heads, .each = each};
    if (each == 1) {
        return;
    }
    if (has(name, ".in_proj_qkv.") || has(name, ".conv1d.")) {
        order.before = 2 * sizes.key_size();
        source.rows = order;
    } else if (has(name, ".in_proj_z.")) {
        source.rows = order;
    } else if (has(name, ".out_proj.")) {
        source.columns = order;
    } else if (has(name, ".in_proj_")) { // one row for each head
        order.unit = 1;
        source.rows = order;
    } else if (!has(name, ".norm.")) { // one value for each head
        order.unit = 1;
        source.columns = order;
    }
}

EncodedSource source_of(const Config &config, const PlannedTensor &planned, uint64_t rows) {
    const std::string &name = planned.name;
    EncodedSource source;
    source.tensor = planned.tensor;
    source.name = name;
    if (planned.stored == Stored::less_one) {
        source.value = EncodedValue::plus_one;
    } else if (planned.stored == Stored::log_rate) {
        source.value = EncodedValue::rate;
    }
    if (family_of(config).gguf_pairs && (has(name, ".q_proj.") || has(name, ".k_proj."))) {
        (rows == 1 ? source.columns : source.rows).pairs_of = config.head_dim;
    }
    if (has(name, ".linear_attn.")) {
        tile(config.recurrent, name, source);
    }
    return source;
}

// Returns the shape of a file's tensor that has one part.
std::vector<uint64_t> shape_of(const PlannedTensor &planned) {
    std::vector<uint64_t> shape = planned.shape;
    if (planned.stored == Stored::by_channel) {
        shape = {shape.front(), shape.back()};
    } else if (shape.size() == 2 && has(planned.name, ".shared_expert_gate.")) {
        shape = {shape.back()};
    } else if (has(planned.name, ".mamba.A_log") || has(planned.name, ".mamba.D")) {
        shape.push_back(1); // one of each head, as of Mamba's first version
    } else if (has(planned.name, ".mamba.norm.")) {
        shape.insert(shape.begin(), 1); // one group
    }
    return shape;
}

// The place of a matrix among those that mixtures count with it.
struct LayerCount {
    uint32_t layer, layers;
};

// Matrices of values are counted where there are any, all others by layers.
LayerCount count_of(const Config &config, const PlannedTensor &tensor) {
    if (!has(tensor.name, ".v_proj.") || tensor.layer >= config.layers) {
        return {tensor.layer, config.layers};
    }
    LayerCount count{0, 0};
    for (uint32_t i = 0; i < config.layers; ++i) {
        const LayerConfig &kind = config.layer[i];
        const bool values = !kind.recurrent && kind.own_keys() && !config.keys_as_values(kind);
        count.layer += values && i < tensor.layer ? 1 : 0;
        count.layers += values ? 1 : 0;
    }
    return count;
}

} // namespace

std::vector<QuantizedTensor> plan_outputs(const Config &config, const Mixture &mixture,
                                          std::span<const PlannedTensor> planned,
                                          std::span<const GgufFactors> rope_factors,
                                          std::span<const EmbeddingDense> dense) {
    std::vector<QuantizedTensor> outputs;
    for (const GgufFactors &factors : rope_factors) {
        EncodedSource source;
        source.own = factors.values.data();
        const uint64_t count = factors.values.size();
        outputs.push_back({{factors.tensor, GgufType::f32, {count}}, count, {{source, 1}}});
    }
    for (size_t i = 0; i < std::min(dense.size(), std::size(kGgufDense)); ++i) {
        EncodedSource source;
        source.own = dense[i].weights.data();
        const uint64_t rows = dense[i].outputs, columns = dense[i].inputs;
        outputs.push_back({{std::string(kGgufDense[i]) + ".weight", GgufType::f32, {rows, columns}},
                           columns,
                           {{source, rows}}});
    }
    std::map<std::string, size_t> places;
    for (const PlannedTensor &tensor : planned) {
        const std::string in_plan = config.fused_tensors ? fused_name(tensor.name) : tensor.name;
        const bool apart = in_plan.starts_with("lm_head.") || in_plan.starts_with("mtp.");
        const std::string name = gguf_name(apart ? in_plan : "model." + in_plan, config);
        if (name.empty()) {
            fail(Status::unsupported, "tensor %s: GGUF files have no name for it",
                 tensor.name.c_str());
        }
        const std::vector<uint64_t> shape = shape_of(tensor);
        const uint64_t rows = shape.size() == 1 ? 1 : shape[0];
        const auto [place, is_new] = places.emplace(name, outputs.size());
        if (is_new) {
            QuantizedTensor &output = outputs.emplace_back();
            output.entry.name = name;
            output.entry.shape = shape;
            output.columns = shape.back();
            if (tensor.matrix != nullptr) {
                const LayerCount at = count_of(config, tensor);
                output.entry.type =
                    matrix_type(mixture, {name, output.columns, at.layer, at.layers,
                                          config.tied_head, config.heads / config.kv_heads});
            }
            if (tensor.tensor->type == DataType::mxfp4) { // stays as it is, in any mixture
                output.entry.type = GgufType::mxfp4;
            }
            if (has(tensor.name, ".experts.")) {
                output.entry.shape.insert(output.entry.shape.begin(), config.experts.count);
            }
        } else if (!has(tensor.name, ".experts.")) {
            outputs[place->second].entry.shape[0] += rows;
        }
        outputs[place->second].parts.push_back({source_of(config, tensor, rows), rows});
    }
    return outputs;
}

} // namespace stasis
