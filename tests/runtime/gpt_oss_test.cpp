// gpt-oss: golden values and what they notice, what sinks do to attention, and the layout of its
// experts.
#include <algorithm>
#include <functional>
#include <numeric>

#include "runtime/model/rope.h"
#include "tests/runtime/edited_model.h"
#include "tests/runtime/golden_deviation.h"
#include "tests/runtime/passes.h"

using namespace stasis;
using namespace stasis::test;

namespace {

const char kGptOss[] = "zoo/gpt-oss", kMxfp4[] = "zoo/gpt-oss-mxfp4";

struct OssMistake {
    const char *name;
    std::function<void(Model &)> make;
};

void change_each_layer(Model &model, const std::function<void(LayerWeights &)> &change) {
    for (LayerWeights &layer : model.weights.layers) {
        change(layer);
    }
}

// Gives every layer sinks of its own, made of those of the model, which `kept` keeps.
void set_sinks(Model &model, std::vector<std::vector<float>> &kept,
               const std::function<void(std::vector<float> &)> &change) {
    change_each_layer(model, [&](LayerWeights &layer) {
        kept.emplace_back(layer.sinks, layer.sinks + model.config.heads);
        change(kept.back());
        layer.sinks = kept.back().data();
    });
}

void set_oss_windows(Model &model, const std::function<uint32_t(uint32_t)> &change) {
    for (LayerConfig &layer : model.config.layer) {
        layer.window = change(layer.window);
    }
    for (LayerGroup &group : model.groups) { // by which pages are named and released
        group.window = change(group.window);
    }
}

void change_each_expert(Model &model, const std::function<void(Mlp &)> &change) {
    change_each_layer(model, [&](LayerWeights &layer) {
        std::for_each(layer.experts.each.begin(), layer.experts.each.end(), change);
    });
}

void change_yarn(Model &model, const std::function<void(Rope &)> &change) {
    change(model.config.ropes[0]);
    model.rope_frequencies[0] = rope_frequencies(model.config.ropes[0], model.config.head_dim);
}

std::vector<OssMistake> oss_mistakes(std::vector<std::vector<float>> &kept) {
    return {
        {"no sinks",
         [](Model &m) { change_each_layer(m, [](LayerWeights &l) { l.sinks = nullptr; }); }},
        {"the mean sink in every head",
         [&](Model &m) {
             set_sinks(m, kept, [](std::vector<float> &sinks) {
                 const float mean = std::accumulate(sinks.begin(), sinks.end(), 0.0F) /
                                    static_cast<float>(sinks.size());
                 std::fill(sinks.begin(), sinks.end(), mean);
             });
         }},
        {"sinks of the next head",
         [&](Model &m) {
             set_sinks(m, kept, [](std::vector<float> &sinks) {
                 std::rotate(sinks.begin(), sinks.begin() + 1, sinks.end());
             });
         }},
        {"window one long",
         [](Model &m) { set_oss_windows(m, [](uint32_t w) { return w + (w != 0); }); }},
        {"window on the other layers",
         [](Model &m) { set_oss_windows(m, [](uint32_t w) { return w == 0 ? 20U : 0U; }); }},
        {"no limit of gates", [](Model &m) { m.config.gate_limit = 1e30F; }},
        {"gates of another kind", [](Model &m) { m.config.gate_limit = 0; }},
        {"gate and up swapped",
         [](Model &m) { change_each_expert(m, [](Mlp &e) { std::swap(e.gate, e.up); }); }},
        {"no biases of experts",
         [](Model &m) {
             change_each_expert(m, [](Mlp &e) { e.gate.bias = e.up.bias = e.down.bias = nullptr; });
         }},
        {"no bias of the router",
         [](Model &m) {
             change_each_layer(m, [](LayerWeights &l) { l.experts.router.bias = nullptr; });
         }},
        {"no bias of the output",
         [](Model &m) { change_each_layer(m, [](LayerWeights &l) { l.output.bias = nullptr; }); }},
        {"YaRN with truncation",
         [](Model &m) { change_yarn(m, [](Rope &rope) { rope.whole_bounds = true; }); }},
        {"YaRN without its amplitude",
         [](Model &m) { change_yarn(m, [](Rope &rope) { rope.amplitude = 1; }); }},
        {"no YaRN",
         [](Model &m) { change_yarn(m, [](Rope &rope) { rope.scaling = RopeScaling::none; }); }},
        {"softmax before the choice", [](Model &m) { m.config.experts.renormalised = false; }},
    };
}

} // namespace

TEST_CASE("logits: logits of gpt-oss agree with the golden values") {
    for (const char *name : {kGptOss, kMxfp4}) {
        const Deviation deviation = measure(open(name), golden(name));
        std::printf("golden %-32s rms %.2f and max %.2f of the tolerance\n", name, deviation.rms,
                    deviation.max);
        CHECK_MESSAGE(within(deviation), name);
    }
}

TEST_CASE("logits: the golden tolerance notices what a port of gpt-oss gets wrong") {
    std::vector<std::vector<float>> kept;
    for (const OssMistake &mistake : oss_mistakes(kept)) {
        for (const char *name : {kGptOss, kMxfp4}) {
            const auto model = open_model(directory(name), {});
            mistake.make(*model);
            const Deviation deviation = measure(model, golden(name));
            std::printf("mistake %-28s rms %.1f and max %.1f of the tolerance of %s\n",
                        mistake.name, deviation.rms, deviation.max, name);
            CHECK_MESSAGE(!within(deviation), mistake.name);
        }
    }
}

// What a sink takes is exp(sink - maximum) of the denominator.
TEST_CASE("attend: a sink far below all scores changes no bit, one far above leaves no attention") {
    const auto logits_with = [](const std::function<void(Model &)> &change, size_t chunk) {
        const auto model = open_model(directory(kGptOss), {});
        change(*model);
        return passed_log(*model, tokens_for(*model, 150), chunk);
    };
    std::vector<std::vector<float>> kept;
    const auto all = [&](float sink) {
        return [&kept, sink](Model &m) {
            set_sinks(m, kept, [&](std::vector<float> &sinks) {
                std::fill(sinks.begin(), sinks.end(), sink);
            });
        };
    };
    const auto none = [](Model &m) {
        change_each_layer(m, [](LayerWeights &l) { l.sinks = nullptr; });
    };
    // The product with the attention is then zero, and the bias is left.
    std::vector<uint16_t> zeros;
    const auto output = [&](Model &m) {
        zeros.assign(m.weights.layers[0].output.rows * m.weights.layers[0].output.columns, 0);
        change_each_layer(m, [&](LayerWeights &l) { l.output.data = zeros.data(); });
    };
    const PassedLog without = logits_with(none, 150), alone = logits_with(output, 150);
    for (const size_t chunk : {150, 64, 7, 1}) {
        CAPTURE(chunk);
        CHECK(same_log(logits_with(all(-1e30F), chunk), without));
        const PassedLog taken = logits_with(all(1e30F), chunk);
        CHECK(std::equal(taken.logits.begin(), taken.logits.end(), alone.logits.begin(),
                         alone.logits.end(), same_bits));
    }
}

TEST_CASE("load_weights: experts by column, gate and up in turn, become matrices by row") {
    const EditedModel stored(kGptOss);
    const Loaded loaded = stored.load();
    const size_t hidden = loaded.config.hidden, inner = loaded.config.experts.intermediate;
    const std::string name = "model.layers.2.mlp.experts.";
    const auto value = [&](const char *part, size_t index) {
        uint16_t bits = 0;
        std::memcpy(&bits, stored.tensors.at(name + part).bytes.data() + 2 * index, 2);
        return bits;
    };
    const auto wide = [](uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); };
    for (const size_t expert : {0, 3, 7}) {
        const Mlp &mlp = loaded.weights.layers[2].experts.each[expert];
        const size_t matrix = expert * 2 * inner * hidden, vector = expert * 2 * inner;
        for (size_t i = 0; i < inner; ++i) {
            for (size_t j = 0; j < hidden; ++j) {
                const size_t at = matrix + j * 2 * inner + 2 * i;
                REQUIRE(mlp.gate.data[i * hidden + j] == value("gate_up_proj", at));
                REQUIRE(mlp.up.data[i * hidden + j] == value("gate_up_proj", at + 1));
                REQUIRE(mlp.down.data[j * inner + i] ==
                        value("down_proj", (expert * inner + i) * hidden + j));
            }
            REQUIRE(mlp.gate.bias[i] == wide(value("gate_up_proj_bias", vector + 2 * i)));
            REQUIRE(mlp.up.bias[i] == wide(value("gate_up_proj_bias", vector + 2 * i + 1)));
        }
        CHECK(mlp.down.bias[5] == wide(value("down_proj_bias", expert * hidden + 5)));
    }
    CHECK(loaded.weights.ignored.empty());
}

TEST_CASE("load_weights: experts in MXFP4 stay MXFP4") {
    const Loaded loaded = load(test_data(kMxfp4));
    for (const LayerWeights &layer : loaded.weights.layers) {
        for (const Mlp &mlp : layer.experts.each) {
            for (const Matrix *matrix : {&mlp.gate, &mlp.up, &mlp.down}) {
                REQUIRE(matrix->strips != nullptr);
                REQUIRE(matrix->quant == kernels::Quant::mxfp4);
            }
        }
    }
    CHECK(loaded.weights.types.find("MXFP4: 96 matrices") != std::string::npos);
    CHECK(loaded.weights.ignored.empty());
}

TEST_CASE("load_weights: experts in MXFP4 that are missing or of wrong shapes are refused") {
    const auto refused = [](Status status, const std::vector<std::string> &parts,
                            const std::function<void(StoredTensors &)> &edit) {
        EditedModel model(kMxfp4);
        edit(model.tensors);
        expect_refused(model, status, parts);
    };
    const std::string experts = "model.layers.1.mlp.experts.", up = experts + "gate_up_proj_";
    for (const std::string &name : {up + "scales", experts + "down_proj_blocks"}) {
        refused(Status::corrupt, {name, "missing"}, [&](auto &tensors) { tensors.erase(name); });
    }
    refused(Status::corrupt, {up + "scales", "[8, 128, 2]", "[8, 2, 128]"}, [&](auto &tensors) {
        tensors.at(up + "scales").shape = {8, 2, 128};
    });
    refused(Status::unsupported, {up + "scales", "BF16", "U8 is"}, [&](auto &tensors) {
        tensors.at(up + "scales") = {"BF16", {8, 128, 1}, std::string(2048, '\0')};
    });
    refused(Status::unsupported, {"q_proj.weight", "U8", "BF16, F16 and F32 are"},
            [&](auto &tensors) {
                tensors.at("model.layers.0.self_attn.q_proj.weight") = {
                    "U8", {128, 64}, std::string(128 * 64, '\0')};
            });
    refused(Status::unsupported, {"extra_blocks", "not part of"}, [&](auto &tensors) {
        tensors["model.layers.0.mlp.extra_blocks"] = {"U8", {3}, "abc"};
    });
    refused(Status::nonfinite, {"experts.3.up_proj.weight", "index 160"}, [&](auto &tensors) {
        // Row 2 of up, its second block.
        tensors.at(up + "scales").bytes[(3 * 128 + 2 * 2 + 1) * 2 + 1] = '\xFF';
    });
}

TEST_CASE("load_weights: experts by column that are missing or of wrong shapes are refused") {
    const auto refused = [](Status status, const std::vector<std::string> &parts,
                            const std::function<void(StoredTensors &)> &edit) {
        EditedModel model(kGptOss);
        edit(model.tensors);
        expect_refused(model, status, parts);
    };
    const std::string mlp = "model.layers.1.mlp.";
    for (const char *name :
         {"router.weight", "router.bias", "experts.gate_up_proj", "experts.gate_up_proj_bias",
          "experts.down_proj", "experts.down_proj_bias"}) {
        refused(Status::corrupt, {mlp + name, "missing"},
                [&](StoredTensors &tensors) { tensors.erase(mlp + name); });
    }
    refused(Status::corrupt, {"self_attn.sinks", "missing"},
            [](StoredTensors &tensors) { tensors.erase("model.layers.3.self_attn.sinks"); });
    refused(Status::corrupt, {"self_attn.sinks", "[4]", "[2, 2]"}, [](StoredTensors &tensors) {
        tensors.at("model.layers.3.self_attn.sinks").shape = {2, 2};
    });
    refused(Status::corrupt, {"gate_up_proj", "[8, 64, 128]", "[8, 128, 64]"},
            [&](StoredTensors &tensors) {
                tensors.at(mlp + "experts.gate_up_proj").shape = {8, 128, 64};
            });
    refused(Status::nonfinite, {"experts.5.up_proj.weight", "index 65"},
            [&](StoredTensors &tensors) { // row 1, column 1
                set_value<uint16_t>(tensors.at(mlp + "experts.gate_up_proj"),
                                    (5 * 64 + 1) * 128 + 2 * 1 + 1, 0x7F80);
            });
}
