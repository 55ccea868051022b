// Splits tensors that hold several matrices; see weights_plan.h, split_tensors.
#include "format/state/error.h"
#include "runtime/model/weights_find.h"
#include "runtime/model/weights_plan.h"

namespace stasis {

namespace {

// Names and rows of the matrices in a tensor, from the first row on.
using Parts = std::vector<std::pair<std::string, uint64_t>>;

// Adds a tensor, which is a part of the one that is called `whole`.
void add_part(Checkpoint &checkpoint, const std::string &name, const Tensor &part,
              const std::string &whole) {
    if (!checkpoint.tensors.emplace(name, part).second) {
        fail(Status::corrupt, "the checkpoint has the tensor %s twice, also in %s",
             shown_name(checkpoint, name).c_str(), shown_name(checkpoint, whole).c_str());
    }
}

// Splits a tensor of several matrices, or of several vectors if `ending` is that of biases, into
// tensors of their own, without copying.
void split_rows(Checkpoint &checkpoint, const std::string &prefix, const std::string &name,
                const std::vector<uint64_t> &shape, const Parts &parts,
                const std::string &ending = ".weight") {
    uint64_t rows = 0;
    for (const auto &[part, part_rows] : parts) {
        rows += part_rows;
    }
    Tensor rest = find_tensor(checkpoint, name, shape);
    const size_t row_bytes = rest.size_bytes / rows;
    for (const auto &[part, part_rows] : parts) {
        rest.shape = {part_rows};
        if (ending == ".weight") {
            rest.shape.push_back(shape.back());
        }
        rest.size_bytes = part_rows * row_bytes;
        add_part(checkpoint, prefix + part + ending, rest, name);
        rest.offset_bytes += rest.size_bytes;
    }
    checkpoint.tensors.erase(name);
}

// Gate and up as one matrix.
void split_gate_up(const Config &config, const std::string &layer, Checkpoint &checkpoint) {
    const std::string mlp = layer + "mlp.";
    split_rows(checkpoint, mlp, mlp + "gate_up_proj.weight",
               {2 * uint64_t{config.intermediate}, config.hidden},
               {{"gate_proj", config.intermediate}, {"up_proj", config.intermediate}});
}

// Phi-3: q, k and v are one matrix, and gate and up.
void split_fused(const Config &config, const std::string &layer, Checkpoint &checkpoint) {
    const uint64_t query_size = uint64_t{config.heads} * config.head_dim;
    const uint64_t key_size = uint64_t{config.kv_heads} * config.head_dim;
    const std::string attention = layer + "self_attn.";
    split_rows(checkpoint, attention, attention + "qkv_proj.weight",
               {query_size + 2 * key_size, config.hidden},
               {{"q_proj", query_size}, {"k_proj", key_size}, {"v_proj", key_size}});
    split_gate_up(config, layer, checkpoint);
}

// Mixtures of experts in three dimensions: [expert][gate, up][hidden] and [expert][hidden][...], or
// gate and up for themselves, as in GGUF files, which have biases too: [expert][...].
void split_experts(const Config &config, const std::string &layer, Checkpoint &checkpoint) {
    const uint64_t count = config.experts.count, inner = config.experts.intermediate;
    const std::string experts = layer + "mlp.experts.";
    const auto split = [&](const std::string &fused, uint64_t rows, const Parts &of_expert,
                           uint64_t columns) {
        if (checkpoint.tensors.count(experts + fused) == 0) {
            return; // the plan names what is missing
        }
        Parts parts;
        for (uint64_t i = 0; i < count; ++i) {
            for (const auto &[part, part_rows] : of_expert) {
                parts.emplace_back(std::to_string(i) + "." + part, part_rows);
            }
        }
        split_rows(checkpoint, experts, experts + fused, {count, rows, columns}, parts);
    };
    for (const std::string ending : {"", ".weight"}) { // of Hugging Face, of GGUF
        split("gate_up_proj" + ending, 2 * inner, {{"gate_proj", inner}, {"up_proj", inner}},
              config.hidden);
        for (const std::string part : {"gate_proj", "up_proj"}) {
            split(part + ending, inner, {{part, inner}}, config.hidden);
        }
        split("down_proj" + ending, config.hidden, {{"down_proj", config.hidden}}, inner);
    }
    for (const auto &[part, size] :
         Parts{{"gate_proj", inner}, {"up_proj", inner}, {"down_proj", uint64_t{config.hidden}}}) {
        if (checkpoint.tensors.count(experts + part + ".bias") != 0) {
            Parts parts;
            for (uint64_t i = 0; i < count; ++i) {
                parts.emplace_back(std::to_string(i) + "." + part, size);
            }
            split_rows(checkpoint, experts, experts + part + ".bias", {count, size}, parts,
                       ".bias");
        }
    }
}

// Part of a tensor of all experts of a layer in which the values of a part's rows lie `row_step`
// apart, and those of its columns `column_step`.
struct PartByColumn {
    const char *name;
    uint64_t first; // value of the first expert's
    std::vector<uint64_t> shape;
    uint64_t row_step, column_step;
};

void split_by_column(Checkpoint &checkpoint, const std::string &experts, const std::string &name,
                     const std::vector<uint64_t> &shape, const std::vector<PartByColumn> &parts) {
    const Tensor whole = find_tensor(checkpoint, name, shape);
    const size_t value_bytes = whole.type == DataType::f32 ? 4 : 2;
    const size_t expert_bytes = whole.size_bytes / shape[0];
    for (uint64_t i = 0; i < shape[0]; ++i) {
        for (const PartByColumn &part : parts) {
            Tensor tensor = whole;
            tensor.offset_bytes += i * expert_bytes + part.first * value_bytes;
            tensor.shape = part.shape;
            tensor.size_bytes = expert_bytes / parts.size();
            tensor.row_step = part.row_step;
            tensor.column_step = part.column_step;
            add_part(checkpoint, experts + std::to_string(i) + "." + part.name, tensor, name);
        }
    }
    checkpoint.tensors.erase(name);
}

// MXFP4: NAME_blocks [expert][row][block][16 bytes] and NAME_scales [expert][row][block], the rows
// of the parts in turn.
void split_mxfp4(Checkpoint &checkpoint, const std::string &experts, const std::string &name,
                 const std::vector<uint64_t> &shape, const std::vector<const char *> &parts) {
    constexpr size_t kBits = 16;
    const kernels::QuantBlock block = kernels::quant_block(kernels::Quant::mxfp4);
    const uint64_t count = shape[0], rows = shape[1], blocks = shape[2] / block.elements;
    const std::string bits_name = experts + name + "_blocks",
                      scales_name = experts + name + "_scales";
    const Tensor bits = find_bytes(checkpoint, bits_name, {count, rows, blocks, kBits});
    const Tensor scales = find_bytes(checkpoint, scales_name, {count, rows, blocks});
    if (shape[2] % block.elements != 0) {
        fail(Status::corrupt, "tensor %s: %llu columns are not a whole number of blocks",
             bits_name.c_str(), static_cast<unsigned long long>(shape[2]));
    }
    for (uint64_t i = 0; i < count * parts.size(); ++i) {
        const uint64_t first = (i / parts.size() * rows + i % parts.size()) * blocks;
        Tensor tensor = bits;
        tensor.type = DataType::mxfp4;
        tensor.shape = {rows / parts.size(), shape[2]};
        tensor.size_bytes = rows / parts.size() * blocks * block.bytes;
        tensor.offset_bytes += first * kBits;
        tensor.row_step = parts.size();
        tensor.scales = scales.source;
        tensor.scales_bytes = scales.offset_bytes + first;
        add_part(checkpoint,
                 experts + std::to_string(i / parts.size()) + "." + parts[i % parts.size()] +
                     ".weight",
                 tensor, bits_name);
    }
    checkpoint.tensors.erase(bits_name);
    checkpoint.tensors.erase(scales_name);
}

// gpt-oss: [expert][hidden][gate, up, gate, up, ...] and [expert][inner][hidden], or both in MXFP4
// by row, and its names.
void split_gpt_oss(const Config &config, const std::string &layer, Checkpoint &checkpoint) {
    const uint64_t count = config.experts.count, inner = config.experts.intermediate;
    const uint64_t hidden = config.hidden;
    const std::string mlp = layer + "mlp.", experts = mlp + "experts.";
    split_rows(checkpoint, mlp, mlp + "router.weight", {count, hidden}, {{"gate", count}});
    split_rows(checkpoint, mlp, mlp + "router.bias", {count}, {{"gate", count}}, ".bias");
    if (checkpoint.tensors.count(experts + "gate_up_proj_blocks") != 0) {
        split_mxfp4(checkpoint, experts, "gate_up_proj", {count, 2 * inner, hidden},
                    {"gate_proj", "up_proj"});
        split_mxfp4(checkpoint, experts, "down_proj", {count, hidden, inner}, {"down_proj"});
    } else {
        split_by_column(checkpoint, experts, experts + "gate_up_proj", {count, hidden, 2 * inner},
                        {{"gate_proj.weight", 0, {inner, hidden}, 2, 2 * inner},
                         {"up_proj.weight", 1, {inner, hidden}, 2, 2 * inner}});
        split_by_column(checkpoint, experts, experts + "down_proj", {count, inner, hidden},
                        {{"down_proj.weight", 0, {hidden, inner}, 1, hidden}});
    }
    split_by_column(checkpoint, experts, experts + "gate_up_proj_bias", {count, 2 * inner},
                    {{"gate_proj.bias", 0, {inner}, 2, 0}, {"up_proj.bias", 1, {inner}, 2, 0}});
    split_by_column(checkpoint, experts, experts + "down_proj_bias", {count, hidden},
                    {{"down_proj.bias", 0, {hidden}, 1, 0}});
}

} // namespace

void split_tensors(const Config &config, Checkpoint &checkpoint) {
    const std::string body = body_prefix(checkpoint);
    for (uint32_t i = 0; i < config.layers; ++i) {
        const std::string layer = body + "layers." + std::to_string(i) + ".";
        if (config.fused_tensors) {
            split_fused(config, layer, checkpoint);
        } else if (config.shared_names) {
            split_gate_up(config, layer, checkpoint);
        }
        if (config.layer[i].experts) {
            config.experts.by_column ? split_gpt_oss(config, layer, checkpoint)
                                     : split_experts(config, layer, checkpoint);
        }
    }
    const bool mtp_experts = has_mtp(config, checkpoint) && mtp_layer(config).experts;
    if (mtp_experts) {
        split_experts(config, kMtpLayer, checkpoint);
    }
    // Before the plan lists them, because a short config can ask for very many.
    uint64_t layers = mtp_experts ? 1 : 0;
    for (const LayerConfig &layer : config.layer) {
        layers += layer.experts ? 1 : 0;
    }
    const uint64_t needed = layers * 3 * config.experts.count;
    if (needed > checkpoint.tensors.size()) {
        fail(Status::corrupt,
             "%s asks for %llu matrices of experts, the checkpoint has %zu tensors",
             checkpoint.description, static_cast<unsigned long long>(needed),
             checkpoint.tensors.size());
    }
}

} // namespace stasis
