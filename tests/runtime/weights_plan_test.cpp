// The tensors of hybrids: what is read and how, what is ignored, and what is refused by name.
#include "runtime/model/weights_plan.h"

#include <functional>

#include "runtime/kernels/math.h"
#include "tests/runtime/edited_model.h"

namespace stasis {

namespace {

const char kHybrid[] = "zoo/qwen3_5-dense";
const std::string kLayers = "model.language_model.layers.", kFirst = kLayers + "0.linear_attn.";

float number_at(const StoredTensor &tensor, size_t index) {
    float value = 0;
    if (tensor.dtype == "F32") {
        std::memcpy(&value, tensor.bytes.data() + 4 * index, 4);
    } else {
        std::memcpy(reinterpret_cast<char *>(&value) + 2, tensor.bytes.data() + 2 * index, 2);
    }
    return value;
}

void expect_edit_refused(Status status, const std::vector<std::string> &parts,
                         const std::function<void(StoredTensors &)> &edit) {
    EditedModel model(kHybrid);
    edit(model.tensors);
    expect_error(status, parts, [&] { model.load(); });
}

// The names of the recurrent tensors of the first layer.
std::vector<std::string> first_layer() {
    std::vector<std::string> names;
    for (const auto &[name, tensor] : EditedModel(kHybrid).tensors) {
        if (name.starts_with(kFirst)) {
            names.push_back(name);
        }
    }
    return names;
}

} // namespace

TEST_CASE("load_weights: a hybrid's layers have attention or recurrent weights") {
    const EditedModel model(kHybrid);
    const Loaded loaded = model.load();
    const Config &config = loaded.config;
    for (uint32_t i = 0; i < config.layers; ++i) {
        const LayerWeights &layer = loaded.weights.layers[i];
        CHECK((layer.recurrent.input.data != nullptr) == config.layer[i].recurrent);
        CHECK((layer.query.data == nullptr) == config.layer[i].recurrent);
        CHECK(layer.mlp.gate.data != nullptr);
        CHECK(layer.attention_norm != nullptr);
    }
    CHECK(loaded.weights.layers[3].query.rows == 2 * config.heads * config.head_dim);
    const RecurrentWeights &first = loaded.weights.layers[0].recurrent;
    CHECK(first.input.rows == config.recurrent.channels());
    CHECK(first.output.columns == config.recurrent.value_size());
    const StoredTensor &taps = model.tensors.at(kFirst + "conv1d.weight");
    for (size_t channel = 0; channel < config.recurrent.channels(); ++channel) {
        for (size_t tap = 0; tap < 4; ++tap) {
            CHECK(first.convolution[tap * config.recurrent.channels() + channel] ==
                  number_at(taps, channel * 4 + tap));
        }
    }
    for (size_t head = 0; head < config.recurrent.value_heads; ++head) {
        CHECK(first.rate[head] ==
              -kernels::exp_f32(number_at(model.tensors.at(kFirst + "A_log"), head)));
        CHECK(first.bias[head] == number_at(model.tensors.at(kFirst + "dt_bias"), head));
    }
    CHECK(first.norm[0] == number_at(model.tensors.at(kFirst + "norm.weight"), 0));
    CHECK(loaded.weights.layers[0].attention_norm[0] ==
          1.0F + number_at(model.tensors.at(kLayers + "0.input_layernorm.weight"), 0));
}

TEST_CASE("load_weights: vision towers and layers of no MTP head are ignored") {
    const EditedModel plain(kHybrid);
    EditedModel model(kHybrid);
    const StoredTensor any = {"BF16", {2}, std::string(4, '\x3F')};
    model.tensors["model.visual.blocks.0.attn.qkv.weight"] = any;
    model.tensors["mtp.layers.0.self_attn.q_proj.weight"] = any;
    model.tensors["mtp.norm.weight"] = any; // but no mtp.fc
    CHECK(differences(plain.load().identity, model.load().identity).empty());
}

TEST_CASE("load_weights: every recurrent tensor counts in its layer's attention") {
    const Loaded plain = EditedModel(kHybrid).load();
    for (const std::string &name : first_layer()) {
        EditedModel model(kHybrid);
        model.tensors.at(name).bytes[0] ^= 1;
        CAPTURE(name);
        CHECK(differences(plain.identity, model.load().identity) ==
              std::vector<std::string>{"attention 0", "model"});
    }
}

TEST_CASE("load_weights: wrong tensors of a hybrid are refused by name") {
    for (const std::string &name : first_layer()) {
        expect_edit_refused(Status::corrupt, {name, "missing"},
                            [&](auto &tensors) { tensors.erase(name); });
        expect_edit_refused(Status::corrupt, {name, "shape"},
                            [&](auto &tensors) { tensors.at(name).shape.push_back(1); });
    }
    expect_edit_refused(Status::corrupt, {"conv1d.weight", "[192, 1, 4]", "[192, 4]"},
                        [](auto &tensors) {
                            tensors.at(kFirst + "conv1d.weight").shape = {192, 4};
                        });
    expect_edit_refused(Status::nonfinite, {"A_log", "index 2"}, [](auto &tensors) {
        const float large = 89; // whose exp is too large
        std::memcpy(tensors.at(kFirst + "A_log").bytes.data() + 8, &large, 4);
    });
    expect_edit_refused(Status::nonfinite, {"conv1d.weight", "index 5"}, [](auto &tensors) {
        tensors.at(kFirst + "conv1d.weight").bytes.replace(10, 2, "\x80\x7F");
    });
    for (const char *other : {"0.linear_attn.conv1d.bias", "0.self_attn.k_proj.weight",
                              "3.linear_attn.A_log", "3.self_attn.g_proj.weight"}) {
        expect_edit_refused(Status::unsupported, {other, "not part of the architecture"},
                            [&](auto &tensors) {
                                tensors[kLayers + other] = {"F32", {1}, std::string(4, '\0')};
                            });
    }
}

} // namespace stasis
