// What a port of scaled RoPE gets wrong, against transformers' golden values (golden_test.cpp).
#include "tests/runtime/golden_mistakes.h"

using namespace stasis;
using namespace stasis::test;

namespace {

// A change of the first RoPE.
std::function<void(Model &)> rope_with(const std::function<void(Rope &)> &change) {
    return [change](Model &model) { change_rope(model, 0, change); };
}

} // namespace

TEST_CASE("logits: the golden tolerance notices what a port of YaRN gets wrong") {
    const Mistake mistakes[] = {
        {"no YaRN", "zoo/qwen3-yarn", rope_with([](Rope &rope) {
             rope.scaling = RopeScaling::none;
             rope.amplitude = 1;
         })},
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
