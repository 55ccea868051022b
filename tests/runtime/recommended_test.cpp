// Recommendations of generation_config.json and general.sampling.*
// (runtime/sampling/recommended.h).
#include "runtime/sampling/recommended.h"

#include <cmath>
#include <doctest/doctest.h>

#include "runtime/model/json_file.h"
#include "tests/runtime/gguf_writer.h"

namespace stasis {

namespace {

RecommendedSampling of_json(const std::string &text) {
    return recommended_sampling(parse_json(text, "generation_config.json"), 100);
}

RecommendedSampling of_gguf(const GgufWriter &writer) {
    const std::string bytes = writer.bytes();
    return recommended_sampling(
        parse_gguf(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size(), "m.gguf"), 100);
}

void check_recommended(const RecommendedSampling &found, const Sampling &expected) {
    CHECK(found.refusal == "");
    CHECK(found.sampling == expected);
}

void check_refused(const RecommendedSampling &found, const std::vector<std::string> &parts) {
    for (const std::string &part : parts) {
        CHECK_MESSAGE(found.refusal.find(part) != std::string::npos, part, " in ", found.refusal);
    }
}

Sampling plain() {
    Sampling sampling;
    sampling.temperature = 1.0F;
    return sampling;
}

} // namespace

TEST_CASE("RecommendedSampling: files that say nothing of sampling leave it to the default") {
    Sampling own;
    own.temperature = 0.6F;
    own.min_p = 0.1F;
    own.repetition_penalty = 1.1F;
    CHECK(default_recommendation() == own);
    check_recommended(recommended_sampling(Json(), 100), own);
    check_recommended(of_json("{}"), own);
    check_recommended(of_json(R"({"eos_token_id":[1,2],"temperature":null,"num_beams":1})"), own);
    check_recommended(of_gguf(GgufWriter().text("general.architecture", "llama")), own);
}

TEST_CASE("RecommendedSampling: each key of generation_config.json") {
    Sampling all = plain();
    all.temperature = 0.7F;
    all.top_k = 20;
    all.top_p = 0.8F;
    all.min_p = 0.05F;
    all.v2.typical_p = 0.9F;
    all.repetition_penalty = 1.05F;
    all.penalty_window = 0; // the whole log, as transformers has it
    const std::string fields = R"("temperature":0.7,"top_k":20,"top_p":0.8,"min_p":0.05,)"
                               R"("typical_p":0.9,"repetition_penalty":1.05})";
    check_recommended(of_json("{" + fields), all);
    check_recommended(of_json(R"({"do_sample":true,)" + fields), all);
    all.temperature = 0.0F;
    check_recommended(of_json(R"({"do_sample":false,)" + fields), all);

    Sampling sampled = plain();
    sampled.penalty_window = 0;
    check_recommended(of_json(R"({"do_sample":true})"), sampled);
    sampled.top_k = 64;
    check_recommended(of_json(R"({"top_k":64})"), sampled);
    sampled = {};
    sampled.penalty_window = 0;
    check_recommended(of_json(R"({"do_sample":false})"), sampled);
    check_recommended(of_json(R"({"temperature":0})"), sampled);
}

TEST_CASE("RecommendedSampling: each key of GGUF metadata") {
    Sampling all = plain();
    all.temperature = 0.7F;
    all.top_k = 20;
    all.top_p = 0.8F;
    all.min_p = 0.05F;
    all.v2.xtc_probability = 0.5F;
    all.v2.xtc_threshold = 0.2F;
    all.repetition_penalty = 1.05F;
    all.penalty_window = 32;
    const auto named = [](const char *name) { return std::string("general.sampling.") + name; };
    GgufWriter writer;
    writer.number(named("temp"), 0.7F).number(named("top_p"), 0.8F).number(named("min_p"), 0.05F);
    writer.number(named("xtc_probability"), 0.5F).number(named("xtc_threshold"), 0.2F);
    writer.number(named("penalty_repeat"), 1.05F).integer(named("top_k"), 20);
    GgufWriter last = writer;
    check_recommended(of_gguf(last.integer(named("penalty_last_n"), 32)), all);
    all.penalty_window = 64;
    check_recommended(of_gguf(writer), all);
    const auto window = [&](int32_t value) {
        GgufWriter other = writer;
        return of_gguf(other.pair(named("penalty_last_n"), GgufValueType::i32, gguf_number(value)));
    };
    all.penalty_window = 0;
    check_recommended(window(-1), all);
    all.repetition_penalty = 1.0F;
    check_recommended(window(0), all);
    Sampling k = plain();
    for (const int32_t value : {-1, 0}) {
        GgufWriter other;
        other.pair(named("top_k"), GgufValueType::i32, gguf_number(value));
        check_recommended(of_gguf(other), k);
    }
}

TEST_CASE("RecommendedSampling: what cannot be used is named, whatever it is") {
    for (const char *key : {"temperature", "top_k", "top_p", "min_p", "typical_p",
                            "repetition_penalty", "do_sample"}) {
        for (const char *value : {R"("1")", "[1]", "{}", "-1", "1e300", "-1e300"}) {
            const std::string name = key;
            CAPTURE(name);
            CAPTURE(value);
            check_refused(of_json("{\"" + name + "\":" + value + "}"),
                          {"generation_config.json: ", name, "expected"});
        }
    }
    check_refused(of_json(R"({"top_p":0})"), {"generation_config.json", "top_p is 0"});
    check_refused(of_json(R"({"min_p":1.5})"), {"generation_config.json", "min_p is 1.5"});
    check_refused(of_json(R"({"top_k":4294967296})"), {"top_k", "4294967295", "4294967296"});
    check_refused(of_json(R"({"top_k":1.5})"), {"top_k", "1.5"});
    for (const char *key : {"temp", "top_p", "min_p", "xtc_probability", "xtc_threshold",
                            "penalty_repeat", "top_k", "penalty_last_n"}) {
        const std::string name = std::string("general.sampling.") + key;
        check_refused(of_gguf(GgufWriter().text(name, "1")), {"m.gguf", name, "STRING"});
        if (name.find("_k") == std::string::npos && name.find("_n") == std::string::npos) {
            for (const float value : {-1.0F, HUGE_VALF, -HUGE_VALF, NAN}) {
                check_refused(of_gguf(GgufWriter().number(name, value)),
                              {"m.gguf: metadata general.sampling: ", "expected a number"});
            }
        }
    }
}

TEST_CASE("RecommendedSampling: suppressed tokens are never drawn") {
    Sampling expected = default_recommendation();
    expected.bias = {{3, -HUGE_VALF}, {98, -HUGE_VALF}};
    check_recommended(of_json(R"({"suppress_tokens":[98,3,98]})"), expected);
    check_recommended(of_json(R"({"suppress_tokens":null})"), default_recommendation());
    check_recommended(of_json(R"({"suppress_tokens":[]})"), default_recommendation());
    check_recommended(of_gguf(GgufWriter().array<int32_t>("tokenizer.ggml.suppress_tokens",
                                                          GgufValueType::i32, {98, 3, 98})),
                      expected);
    // Greedy settings keep them.
    expected = plain();
    expected.temperature = 0.0F;
    expected.penalty_window = 0;
    expected.bias = {{3, -HUGE_VALF}};
    check_recommended(of_json(R"({"suppress_tokens":[3],"do_sample":false})"), expected);

    check_recommended(of_json(R"({"suppress_tokens":[100]})"), default_recommendation());
    for (const char *value : {"[-1]", "[\"3\"]", "3", "{}"}) {
        check_refused(of_json(std::string("{\"suppress_tokens\":") + value + "}"),
                      {"generation_config.json", "suppress_tokens"});
    }
    check_refused(of_gguf(GgufWriter().array<int32_t>("tokenizer.ggml.suppress_tokens",
                                                      GgufValueType::i32, {-1})),
                  {"m.gguf", "tokenizer.ggml.suppress_tokens"});
}

} // namespace stasis
