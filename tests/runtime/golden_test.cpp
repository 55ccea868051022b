// Logits against transformers' golden values, within the tolerance that comes with them, and the
// proof that the tolerance notices a wrong rope base, window, scale, norm, bias or missing cap.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <span>

#include "tests/runtime/golden_mistakes.h"
#include "tests/runtime/json_data.h"

using namespace stasis;
using namespace stasis::test;

namespace {

void check_model(const std::string &name) {
    const Deviation deviation = measure(open(name), golden(name));
    std::printf("golden %-32s rms %.2f and max %.2f of the tolerance\n", name.c_str(),
                deviation.rms, deviation.max);
    CHECK_MESSAGE(within(deviation), name);
}

} // namespace

TEST_CASE("logits: logits of every bundled model agree with the golden values") {
    for (const std::string &name : bundled()) {
        check_model(name);
    }
}

TEST_CASE("logits: logits of stories260K agree with the golden values") {
    if (directory("stories260K").empty()) {
        STASIS_SKIP("../shared/data/stories260K is not beside this clone");
    }
    check_model("stories260K");
}

TEST_CASE("logits: the golden tolerance notices what a port gets wrong") {
    const Mistake mistakes[] = {
        {"rope base", "zoo/llama-gqa-untied",
         [](Model &m) { change_rope(m, 0, [](Rope &r) { r.base = 1e6; }); }},
        {"rope scaling left out", "zoo/llama3-tied-ropescaled",
         [](Model &m) { change_rope(m, 0, [](Rope &r) { r.scaling = RopeScaling::none; }); }},
        {"both rope bases alike", "zoo/gemma3-text",
         [](Model &m) {
             for (LayerConfig &layer : m.config.layer) {
                 layer.rope = 0;
             }
         }},
        {"window one short", "zoo/gemma3-text",
         [](Model &m) {
             for (LayerConfig &layer : m.config.layer) {
                 layer.window -= layer.window != 0 ? 1 : 0;
             }
         }},
        {"window one long", "zoo/gemma3-text",
         [](Model &m) {
             for (LayerConfig &layer : m.config.layer) {
                 layer.window += layer.window != 0 ? 1 : 0;
             }
         }},
        {"scale from head_dim", "zoo/gemma3-softcap-linear-rope",
         [](Model &m) {
             m.config.attention_scale = 1 / std::sqrt(static_cast<float>(m.config.head_dim));
         }},
        {"attention cap wrong", "zoo/gemma3-softcap-linear-rope",
         [](Model &m) { m.config.attention_softcap = 0.25F; }},
        {"final cap wrong", "zoo/gemma3-softcap-linear-rope",
         [](Model &m) { m.config.final_softcap = 3; }},
        {"norm eps", "zoo/llama-odd-sizes-f32", [](Model &m) { m.config.norm_eps = 1e-6F; }},
        {"norm eps of Gemma", "zoo/gemma3-multimodal-prefix",
         [](Model &m) { m.config.norm_eps = 1e-6F; }},
        {"embedding scale missing", "zoo/gemma3-text",
         [](Model &m) { m.config.embedding_scale = 1; }},
        {"activation", "zoo/gemma3-text", [](Model &m) { m.config.activation = Activation::silu; }},
        {"biases missing", "zoo/llama-mha-bias-f16-sharded",
         [](Model &m) {
             m.weights.layers[1].query.bias = m.weights.layers[1].mlp.gate.bias = nullptr;
         }},
        {"query and key norm missing", "zoo/gemma3-text",
         [](Model &m) { m.weights.layers[2].query_norm = nullptr; }},
        {"post norms missing", "zoo/gemma3-text",
         [](Model &m) { m.weights.layers[3].post_attention_norm = nullptr; }},
    };
    check_noticed(mistakes);
}

TEST_CASE("logits: the golden tolerance notices what a port of Mistral or Qwen gets wrong") {
    const Mistake mistakes[] = {
        {"window of Mistral one short", "zoo/mistral-window",
         [](Model &m) { change_windows(m, [](uint32_t window) { return window - 1; }); }},
        {"window of Mistral one long", "zoo/mistral-window",
         [](Model &m) { change_windows(m, [](uint32_t window) { return window + 1; }); }},
        {"window of Mistral missing", "zoo/mistral-window",
         [](Model &m) { change_windows(m, [](uint32_t) { return 0U; }); }},
        {"rope base of Qwen2", "zoo/qwen2-bias-tied",
         [](Model &m) { change_rope(m, 0, [](Rope &r) { r.base = 1e4; }); }},
        {"rope base of Qwen3", "zoo/qwen3-qknorm",
         [](Model &m) { change_rope(m, 0, [](Rope &r) { r.base = 1e4; }); }},
        {"rope base of Mistral", "zoo/mistral-window",
         [](Model &m) { change_rope(m, 0, [](Rope &r) { r.base = 1e6; }); }},
        {"query bias of Qwen2 missing", "zoo/qwen2-bias-tied",
         [](Model &m) { m.weights.layers[1].query.bias = nullptr; }},
        {"value bias of Qwen2 missing", "zoo/qwen2-bias-tied",
         [](Model &m) { m.weights.layers[0].value.bias = nullptr; }},
        {"query norm of Qwen3 missing", "zoo/qwen3-qknorm",
         [](Model &m) { m.weights.layers[1].query_norm = nullptr; }},
        {"key norm of Qwen3 missing", "zoo/qwen3-qknorm",
         [](Model &m) { m.weights.layers[2].key_norm = nullptr; }},
    };
    check_noticed(mistakes);
}

TEST_CASE("logits: stories260K tells the published story") {
    if (directory("stories260K").empty()) {
        STASIS_SKIP("../shared/data/stories260K is not beside this clone");
    }
    kernels::FloatEnvironment environment;
    const auto published = read_json(directory("stories260K") + "/golden_bos_greedy.json");
    const auto ids = published["greedy_ids"].get<std::vector<uint32_t>>(); // bos first
    REQUIRE(ids.size() > 100);
    // Gaps of the golden logits, [256][512] float32 after the .npy header.
    std::ifstream file(directory("stories260K") + "/golden_bos_greedy_logits.npy",
                       std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    const size_t steps = 256, vocabulary = 512;
    std::vector<float> logits(steps * vocabulary);
    std::memcpy(logits.data(), bytes.data() + bytes.size() - logits.size() * 4, logits.size() * 4);

    const double noise = golden("stories260K").max;
    Session session(open("stories260K"), {});
    session.append(std::span(ids).first(1), {});
    for (size_t i = 1; i < ids.size() && i <= steps; ++i) {
        if (session.decode() == ids[i]) {
            continue;
        }
        std::vector<float> row(logits.begin() + (i - 1) * vocabulary,
                               logits.begin() + i * vocabulary);
        std::sort(row.begin(), row.end(), std::greater<>());
        std::printf("stories260K parts from the published text at token %zu, gap %.3f\n", i,
                    row[0] - row[1]);
        CHECK(double{row[0]} - double{row[1]} <= 2 * noise);
        return;
    }
    std::printf("stories260K: all %zu published tokens\n", ids.size());
}
