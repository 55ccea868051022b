// What a port of Gemma 4 gets wrong, against transformers' golden values (golden_test.cpp).
#include <cmath>

#include "tests/runtime/golden_mistakes.h"

using namespace stasis;
using namespace stasis::test;

namespace {

constexpr char kGemmaSmall[] = "zoo/gemma4-e", kGemmaMixture[] = "zoo/gemma4-moe";
constexpr size_t kGlobalRope = 1; // the first layer has a window

void change_layers(Model &model, const std::function<void(LayerWeights &)> &change) {
    for (LayerWeights &layer : model.weights.layers) {
        change(layer);
    }
}

const float *ones() {
    static const std::vector<float> values(1024, 1.0F);
    return values.data();
}

const float *zeros() {
    static const std::vector<float> values(1024, 0.0F);
    return values.data();
}

uint32_t one_longer(uint32_t window) {
    return window == 0 ? 0 : window + 1;
}

// Wider than all that is computed: a window of 0 would change the sizes of heads.
uint32_t no_window(uint32_t window) {
    return window == 0 ? 0 : 2048;
}

void swap_ropes(Model &model) {
    for (LayerConfig &layer : model.config.layer) {
        layer.rope = 1 - layer.rope;
    }
}

// Exponents over the numbers that turn, in place of all of the head's.
void turn_by_part(Model &model) {
    Rope &rope = model.config.ropes[kGlobalRope];
    std::vector<double> frequencies(model.config.rotary_of(rope) / 2, 0.0);
    Rope plain;
    plain.base = rope.base;
    const std::vector<double> part = rope_frequencies(plain, 2 * rope.still_from);
    std::copy(part.begin(), part.end(), frequencies.begin());
    model.rope_frequencies[kGlobalRope] = frequencies;
}

void turn_whole_heads(Model &model) {
    change_rope(model, kGlobalRope, [](Rope &rope) { rope.still_from = 0; });
}

void scale_by_head(Model &model) {
    model.config.attention_scale = 1 / std::sqrt(static_cast<float>(model.config.head_dim));
}

// The layers that share keys read those of another layer of their kind.
void read_other_keys(Model &model) {
    for (uint32_t i = 0; i < model.config.layers; ++i) {
        const LayerConfig &kind = model.config.layer[i];
        if (!kind.own_keys() && kind.window != 0) {
            model.layer_places[i] = model.layer_places[0];
        }
    }
}

void forget_tokens(Model &model) {
    static const std::vector<uint8_t> rows(1U << 20, 0);
    model.weights.inputs.tokens.rows = rows.data();
}

} // namespace

TEST_CASE("logits: the golden tolerance notices what a port of Gemma 4 gets wrong") {
    const Mistake mistakes[] = {
        {"scale of the head's size", kGemmaSmall, scale_by_head},
        {"no scale of embeddings", kGemmaSmall, [](Model &m) { m.config.embedding_scale = 1; }},
        {"no window", kGemmaSmall, [](Model &m) { change_windows(m, no_window); }},
        {"window one long", kGemmaSmall, [](Model &m) { change_windows(m, one_longer); }},
        {"rope bases swapped", kGemmaSmall, swap_ropes},
        {"rotary over the whole head", kGemmaSmall, turn_whole_heads},
        {"exponents over the part", kGemmaSmall, turn_by_part},
        {"keys of another layer", kGemmaSmall, read_other_keys},
        {"no inputs of layers", kGemmaSmall, [](Model &m) { m.config.layer_inputs = 0; }},
        {"no token's part of them", kGemmaSmall, forget_tokens},
        {"no context's part of them", kGemmaSmall,
         [](Model &m) { m.weights.inputs.norm = zeros(); }},
        {"no gain of their norm", kGemmaSmall, [](Model &m) { m.weights.inputs.norm = ones(); }},
        {"no scalars of layers", kGemmaSmall,
         [](Model &m) { change_layers(m, [](LayerWeights &l) { l.scalar = nullptr; }); }},
        {"no norm of values", kGemmaSmall, [](Model &m) { m.config.value_norm = false; }},
        {"silu", kGemmaSmall, [](Model &m) { m.config.activation = Activation::silu; }},
        {"no final cap", kGemmaSmall, [](Model &m) { m.config.final_softcap = 0; }},
    };
    check_noticed(mistakes);
}

TEST_CASE("logits: the golden tolerance notices what a port of Gemma 4's mixture gets wrong") {
    const auto experts = [](const std::function<void(ExpertWeights &)> &change) {
        return [change](Model &m) {
            change_layers(m, [&](LayerWeights &layer) { change(layer.experts); });
        };
    };
    const Mistake mistakes[] = {
        {"scale of the head's size", kGemmaMixture, scale_by_head},
        {"window one long", kGemmaMixture, [](Model &m) { change_windows(m, one_longer); }},
        {"rope bases swapped", kGemmaMixture, swap_ropes},
        {"rotary over the whole head", kGemmaMixture, turn_whole_heads},
        {"exponents over the part", kGemmaMixture, turn_by_part},
        {"no scalars of layers", kGemmaMixture,
         [](Model &m) { change_layers(m, [](LayerWeights &l) { l.scalar = nullptr; }); }},
        {"no norm of values", kGemmaMixture, [](Model &m) { m.config.value_norm = false; }},
        {"silu", kGemmaMixture, [](Model &m) { m.config.activation = Activation::silu; }},
        {"no final cap", kGemmaMixture, [](Model &m) { m.config.final_softcap = 0; }},
        {"no scale of the router", kGemmaMixture,
         experts([](ExpertWeights &e) { e.router_scale = ones(); })},
        {"no scales of experts", kGemmaMixture,
         experts([](ExpertWeights &e) { e.scales = nullptr; })},
        {"experts of the MLP's input", kGemmaMixture,
         [](Model &m) { change_layers(m, [](LayerWeights &l) { l.experts.norm = l.mlp_norm; }); }},
        {"MLP off", kGemmaMixture, experts([](ExpertWeights &e) { e.post_mlp_norm = zeros(); })},
        {"experts off", kGemmaMixture, experts([](ExpertWeights &e) { e.post_norm = zeros(); })},
        {"one expert less", kGemmaMixture, [](Model &m) { m.config.experts.chosen = 1; }},
        {"gate and up swapped", kGemmaMixture, experts([](ExpertWeights &e) {
             for (Mlp &each : e.each) {
                 std::swap(each.gate, each.up);
             }
         })},
    };
    check_noticed(mistakes);
}
