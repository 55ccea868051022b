// An MTP head for a bundled hybrid, which has none. For tests; says independently of the product
// which tensors a head has.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tests/runtime/model_files.h"

namespace stasis::test {

inline const std::string kMtp = "mtp.";

// Returns a tensor of the same shape whose values of two bytes are in reverse order.
inline StoredTensor reversed(const StoredTensor &tensor) {
    StoredTensor out = tensor;
    for (size_t at = 0; at < out.bytes.size(); at += 2) {
        out.bytes.replace(at, 2, tensor.bytes, tensor.bytes.size() - 2 - at, 2);
    }
    return out;
}

// Replaces tensors of all experts by one for each: [count][parts * rows][columns], part by part.
inline void split_experts_of(StoredTensors &tensors, const std::string &fused,
                             const std::vector<std::string> &parts) {
    const std::string experts = "mtp.layers.0.mlp.experts.";
    const auto found = tensors.find(experts + fused);
    if (found == tensors.end()) {
        return;
    }
    const StoredTensor whole = found->second;
    tensors.erase(found);
    const uint64_t count = whole.shape[0], rows = whole.shape[1] / parts.size();
    const size_t size = whole.bytes.size() / (count * parts.size());
    for (size_t i = 0; i < count * parts.size(); ++i) {
        tensors[experts + std::to_string(i / parts.size()) + "." + parts[i % parts.size()] +
                ".weight"] = {"BF16", {rows, whole.shape[2]}, whole.bytes.substr(i * size, size)};
    }
}

// Adds a head of one layer to a model of BF16. Its values are those of the model's last layer and
// of its embeddings, but reversed, so that none is the model's at the same place. Each expert has
// tensors of its own.
inline void add_mtp_head(StoredTensors &tensors) {
    const std::string model = "model.language_model.";
    std::string last; // "...layers.7."
    for (const auto &[name, tensor] : tensors) {
        const size_t end = name.find(".self_attn.q_proj");
        last = end == std::string::npos ? last : std::max(last, name.substr(0, end + 1));
    }
    StoredTensors head;
    for (const auto &[name, tensor] : tensors) {
        if (name.starts_with(last)) {
            head["mtp.layers.0." + name.substr(last.size())] = reversed(tensor);
        }
    }
    const StoredTensor &norm = tensors.at(model + "norm.weight");
    const StoredTensor &embeddings = tensors.at(model + "embed_tokens.weight");
    const uint64_t hidden = norm.shape[0];
    head["mtp.fc.weight"] = {
        "BF16", {hidden, 2 * hidden}, reversed(embeddings).bytes.substr(0, 4 * hidden * hidden)};
    head["mtp.norm.weight"] = reversed(norm);
    head["mtp.pre_fc_norm_embedding.weight"] = norm;
    head["mtp.pre_fc_norm_hidden.weight"] = reversed(tensors.at(last + "input_layernorm.weight"));
    split_experts_of(head, "gate_up_proj", {"gate_proj", "up_proj"});
    split_experts_of(head, "down_proj", {"down_proj"});
    tensors.merge(head);
}

} // namespace stasis::test
