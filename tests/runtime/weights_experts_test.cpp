// The tensors of mixtures of experts: three dimensions or one matrix each give the same model, and
// what is wrong is refused by name.
#include <functional>

#include "tests/runtime/edited_model.h"

namespace stasis {

namespace {

const char kMixture[] = "zoo/qwen3-moe", kShared[] = "zoo/qwen3_5-moe";

// Joins the experts of a layer, as newer tools write them.
void join(StoredTensors &tensors, uint32_t layer, uint32_t count) {
    const std::string experts = "model.layers." + std::to_string(layer) + ".mlp.experts.";
    StoredTensor gate_up, down;
    for (uint32_t i = 0; i < count; ++i) {
        const auto take = [&](const char *part, StoredTensor &into) {
            const auto found = tensors.find(experts + std::to_string(i) + "." + part + ".weight");
            into.dtype = found->second.dtype;
            into.shape = {count, found->second.shape[0], found->second.shape[1]};
            into.bytes += found->second.bytes;
            tensors.erase(found);
        };
        take("gate_proj", gate_up);
        take("up_proj", gate_up);
        take("down_proj", down);
    }
    gate_up.shape[1] *= 2;
    tensors[experts + "gate_up_proj"] = gate_up;
    tensors[experts + "down_proj"] = down;
}

void expect_edit_refused(const char *name, Status status, const std::vector<std::string> &parts,
                         const std::function<void(StoredTensors &)> &edit) {
    EditedModel model(name);
    edit(model.tensors);
    expect_refused(model, status, parts);
}

} // namespace

TEST_CASE("load_weights: experts in one tensor are the same model as experts of their own") {
    EditedModel model(kMixture);
    const Loaded apart = model.load();
    for (uint32_t layer = 0; layer < apart.config.layers; ++layer) {
        join(model.tensors, layer, apart.config.experts.count);
    }
    const Loaded joined = model.load();
    CHECK(joined.identity.model == apart.identity.model);
    CHECK(joined.weights.storage.empty()); // mapped, not copied
    const Mlp &a = apart.weights.layers[2].experts.each[5];
    const Mlp &b = joined.weights.layers[2].experts.each[5];
    const size_t bytes = a.up.rows * a.up.columns * sizeof(uint16_t);
    CHECK(std::memcmp(a.up.data, b.up.data, bytes) == 0);
    CHECK(std::memcmp(a.down.data, b.down.data, bytes) == 0);
}

TEST_CASE("load_weights: experts that are missing, of wrong shapes or too many are refused") {
    const std::string first = "model.layers.0.mlp.experts.";
    expect_edit_refused(kMixture, Status::corrupt, {"experts.3.up_proj.weight", "missing"},
                        [&](auto &tensors) {
                            tensors["model.unused"] = tensors.at(first + "3.up_proj.weight");
                            tensors.erase(first + "3.up_proj.weight");
                        });
    expect_edit_refused(kMixture, Status::corrupt, {"96 matrices of experts"}, [](auto &tensors) {
        for (auto at = tensors.begin(); at != tensors.end();) {
            at = at->first.find("experts") != std::string::npos ? tensors.erase(at) : ++at;
        }
    });
    expect_edit_refused(kMixture, Status::corrupt, {"experts.0.down_proj.weight", "[32, 64]"},
                        [&](auto &tensors) {
                            tensors.at(first + "0.down_proj.weight").shape = {32, 64};
                        });
    expect_edit_refused(kMixture, Status::corrupt, {"mlp.gate.weight", "missing"},
                        [](auto &tensors) { tensors.erase("model.layers.1.mlp.gate.weight"); });
    expect_edit_refused(kMixture, Status::unsupported, {"experts.8.up_proj.weight", "not part of"},
                        [&](auto &tensors) {
                            tensors[first + "8.up_proj.weight"] =
                                tensors.at(first + "7.up_proj.weight");
                        });
    expect_edit_refused(kMixture, Status::unsupported, {"mlp.shared_expert_gate", "not part of"},
                        [](auto &tensors) {
                            tensors["model.layers.0.mlp.shared_expert_gate.weight"] =
                                tensors.at("model.layers.0.mlp.gate.weight");
                        });
    const std::string body = "model.language_model.layers.0.mlp.";
    expect_edit_refused(kShared, Status::corrupt, {"experts.gate_up_proj", "[8, 64, 64]"},
                        [&](auto &tensors) {
                            tensors.at(body + "experts.gate_up_proj").shape = {8, 32, 128};
                        });
    expect_edit_refused(kShared, Status::corrupt, {"shared_expert_gate.weight", "missing"},
                        [&](auto &tensors) { tensors.erase(body + "shared_expert_gate.weight"); });
    expect_edit_refused(kShared, Status::corrupt, {"experts.0.down_proj.weight", "twice"},
                        [&](auto &tensors) {
                            tensors[body + "experts.0.down_proj.weight"] =
                                StoredTensor{"BF16", {64, 32}, std::string(64 * 32 * 2, '\0')};
                        });
}

} // namespace stasis
