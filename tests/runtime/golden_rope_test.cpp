// What a port of scaled RoPE gets wrong, against transformers' golden values (golden_test.cpp).
#include "tests/runtime/golden_mistakes.h"

using namespace stasis;
using namespace stasis::test;

namespace {

// A change of one RoPE.
std::function<void(Model &)> rope_with(const std::function<void(Rope &)> &change,
                                       size_t index = 0) {
    return [change, index](Model &model) { change_rope(model, index, change); };
}

void leave_yarn_out(Rope &rope) {
    rope.scaling = RopeScaling::none;
    rope.amplitude = 1;
}

// Norms of queries and keys without what they multiply by.
void flatten_norms(Model &model) {
    static const std::vector<float> ones(1024, 1.0F);
    for (LayerWeights &layer : model.weights.layers) {
        layer.query_norm = layer.key_norm = ones.data();
    }
}

} // namespace

TEST_CASE("logits: the golden tolerance notices what a port of YaRN gets wrong") {
    const Mistake mistakes[] = {
        {"no YaRN", "zoo/qwen3-yarn", rope_with(leave_yarn_out)},
        {"half YaRN's factor", "zoo/qwen3-yarn", rope_with([](Rope &rope) { rope.factor /= 2; })},
        {"linear for YaRN", "zoo/qwen3-yarn",
         rope_with([](Rope &rope) { rope.scaling = RopeScaling::linear; })},
        {"no amplitude of YaRN", "zoo/qwen3-yarn",
         rope_with([](Rope &rope) { rope.amplitude = 1; })},
        {"no whole bounds of YaRN", "zoo/qwen3-yarn",
         rope_with([](Rope &rope) { rope.whole_bounds = false; })},
    };
    check_noticed(mistakes);
}

TEST_CASE("logits: the golden tolerance notices what a port of SmolLM3 gets wrong") {
    const Mistake mistakes[] = {
        {"rope on every layer", "zoo/smollm3-nope",
         [](Model &m) {
             for (LayerConfig &layer : m.config.layer) {
                 layer.rope = m.config.layer[0].rope;
             }
         }},
        {"layers without rope inverted", "zoo/smollm3-nope",
         [](Model &m) {
             for (LayerConfig &layer : m.config.layer) {
                 layer.rope = 1 - layer.rope;
             }
         }},
    };
    check_noticed(mistakes);
}

TEST_CASE("logits: the golden tolerance notices what a port of Ministral 3 gets wrong") {
    const char *const name = "zoo/ministral3-yarn";
    const Mistake mistakes[] = {
        {"no YaRN", name, rope_with(leave_yarn_out)},
        {"amplitude without mscale", name,
         rope_with([](Rope &rope) { rope.amplitude = yarn_amplitude(rope.factor, 1); })},
        {"half YaRN's factor", name, rope_with([](Rope &rope) { rope.factor /= 2; })},
        {"queries do not grow", name, [](Model &m) { m.config.query_growth = 0; }},
    };
    check_noticed(mistakes);
}

TEST_CASE("logits: the golden tolerance notices what a port of OLMo 3 gets wrong") {
    const char *const name = "zoo/olmo3";
    const size_t global = 1; // the first layer has a window
    const auto widen = [](uint32_t window) { return window == 0 ? 0 : window + 1; };
    const Mistake mistakes[] = {
        {"no window", name, [](Model &m) { change_windows(m, [](uint32_t) { return 0U; }); }},
        {"window one long", name, [&](Model &m) { change_windows(m, widen); }},
        {"no YaRN", name, rope_with(leave_yarn_out, global)},
        {"no amplitude of YaRN", name, rope_with([](Rope &rope) { rope.amplitude = 1; }, global)},
        {"YaRN in local layers too", name,
         [&](Model &m) {
             for (LayerConfig &layer : m.config.layer) {
                 layer.rope = global;
             }
         }},
        {"no gain of head norms", name, flatten_norms},
    };
    check_noticed(mistakes);
}
