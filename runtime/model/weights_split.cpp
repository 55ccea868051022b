// Splits tensors that hold several matrices; see weights_plan.h, split_tensors.
#include "format/state/error.h"
#include "runtime/model/weights_find.h"
#include "runtime/model/weights_plan.h"

namespace stasis {

namespace {

// Names and rows of the matrices in a tensor, from the first row on.
using Parts = std::vector<std::pair<std::string, uint64_t>>;

// Splits a tensor of several matrices into tensors of their own, without copying.
void split_rows(Checkpoint &checkpoint, const std::string &prefix, const std::string &name,
                const std::vector<uint64_t> &shape, const Parts &parts) {
    const uint64_t columns = shape.back();
    uint64_t rows = 0;
    for (const auto &[part, part_rows] : parts) {
        rows += part_rows;
    }
    Tensor rest = find_tensor(checkpoint, name, shape);
    const size_t row_bytes = rest.size_bytes / rows;
    for (const auto &[part, part_rows] : parts) {
        rest.shape = {part_rows, columns};
        rest.size_bytes = part_rows * row_bytes;
        if (!checkpoint.tensors.emplace(prefix + part + ".weight", rest).second) {
            fail(Status::corrupt, "the checkpoint has the tensor %s twice, also in %s",
                 shown_name(checkpoint, prefix + part + ".weight").c_str(),
                 shown_name(checkpoint, name).c_str());
        }
        rest.offset_bytes += rest.size_bytes;
    }
    checkpoint.tensors.erase(name);
}

// Phi-3: q, k and v are one matrix, and gate and up.
void split_fused(const Config &config, const std::string &layer, Checkpoint &checkpoint) {
    const uint64_t query_size = uint64_t{config.heads} * config.head_dim;
    const uint64_t key_size = uint64_t{config.kv_heads} * config.head_dim;
    const std::string attention = layer + "self_attn.", mlp = layer + "mlp.";
    split_rows(checkpoint, attention, attention + "qkv_proj.weight",
               {query_size + 2 * key_size, config.hidden},
               {{"q_proj", query_size}, {"k_proj", key_size}, {"v_proj", key_size}});
    split_rows(checkpoint, mlp, mlp + "gate_up_proj.weight",
               {2 * uint64_t{config.intermediate}, config.hidden},
               {{"gate_proj", config.intermediate}, {"up_proj", config.intermediate}});
}

// Mixtures of experts in three dimensions: [expert][gate, up][hidden] and [expert][hidden][...], or
// gate and up for themselves, as in GGUF files.
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
}

} // namespace

void split_tensors(const Config &config, Checkpoint &checkpoint) {
    const std::string body = body_prefix(checkpoint);
    for (uint32_t i = 0; i < config.layers; ++i) {
        const std::string layer = body + "layers." + std::to_string(i) + ".";
        if (config.fused_tensors) {
            split_fused(config, layer, checkpoint);
        }
        if (config.layer[i].experts) {
            split_experts(config, layer, checkpoint);
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
