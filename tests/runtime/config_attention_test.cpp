// config.json of the architectures whose attention differs from Llama's: layers without RoPE, long
// RoPE, queries that grow, norms over all heads.
#include "runtime/model/config.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "tests/runtime/model_files.h"
#include "tests/runtime/published_configs.h"

namespace stasis {

namespace {

const char *const kSmolLM3 = R"({"architectures":["SmolLM3ForCausalLM"],"attention_bias":false,
    "attention_dropout":0.0,"bos_token_id":null,"eos_token_id":128012,"hidden_act":"silu",
    "hidden_size":2048,"initializer_range":0.02,"intermediate_size":11008,
    "max_position_embeddings":65536,"max_window_layers":28,"mlp_bias":false,"model_type":"smollm3",
    "no_rope_layer_interval":4,"no_rope_layers":[1,1,1,0,1,1,1,0],"num_attention_heads":16,
    "num_hidden_layers":8,"num_key_value_heads":4,"pad_token_id":128004,"pretraining_tp":2,
    "rms_norm_eps":1e-06,"rope_scaling":null,"rope_theta":5000000.0,"sliding_window":null,
    "torch_dtype":"bfloat16","use_cache":false,"use_sliding_window":false,"vocab_size":128256})";

const char *const kMinistral3 = R"({"architectures":["Mistral3ForConditionalGeneration"],
    "dtype":"bfloat16","image_token_index":10,"model_type":"mistral3","text_config":{
    "attention_dropout":0.0,"head_dim":128,"hidden_act":"silu","hidden_size":3072,
    "initializer_range":0.02,"intermediate_size":9216,"max_position_embeddings":262144,
    "model_type":"ministral3","num_attention_heads":32,"num_hidden_layers":26,
    "num_key_value_heads":8,"rms_norm_eps":1e-05,"rope_parameters":{"beta_fast":32.0,
    "beta_slow":1.0,"factor":16.0,"llama_4_scaling_beta":0.1,"mscale":1.0,"mscale_all_dim":1.0,
    "original_max_position_embeddings":16384,"rope_theta":1000000.0,"rope_type":"yarn",
    "type":"yarn"},"sliding_window":null,"tie_word_embeddings":true,"use_cache":true,
    "vocab_size":131072},"vision_config":{"hidden_size":1024,"model_type":"pixtral"},
    "vision_feature_layer":-1})";

const char *const kOlmo3 = R"({"architectures":["Olmo3ForCausalLM"],"attention_bias":false,
    "eos_token_id":100257,"hidden_act":"silu","hidden_size":4096,"intermediate_size":11008,
    "max_position_embeddings":65536,"model_type":"olmo3","num_attention_heads":32,
    "num_hidden_layers":8,"num_key_value_heads":32,"pad_token_id":100277,"rms_norm_eps":1e-06,
    "rope_scaling":{"attention_factor":1.2079441541679836,"beta_fast":32,"beta_slow":1,
    "factor":8.0,"original_max_position_embeddings":8192,"rope_type":"yarn"},"rope_theta":500000,
    "sliding_window":4096,"tie_word_embeddings":false,"vocab_size":100278})";

// Phi-4-mini, with a head of eight numbers.
Changes long_rope(const JsonValue &scaling = JsonValue::object(), const Changes &more = {}) {
    JsonValue object = {
        {"type", "longrope"}, {"short_factor", {1, 1.5, 2}}, {"long_factor", {4.25, 8, 16}}};
    object.update(scaling);
    Changes changes = {{"hidden_size", 256},
                       {"max_position_embeddings", 131072},
                       {"partial_rotary_factor", 0.75},
                       {"rope_scaling", object}};
    for (const auto &[key, value] : more) {
        changes[key] = value;
    }
    return changes;
}

} // namespace

TEST_CASE("Config: SmolLM3 has layers without RoPE") {
    const Config config = changed_config(kSmolLM3);
    CHECK(config.architecture == "smollm3");
    CHECK(config.tied_head);
    CHECK(config.bos.empty());
    REQUIRE(config.ropes.size() == 2);
    CHECK(config.ropes[0] == Rope{5e6});
    CHECK(config.ropes[1].scaling == RopeScaling::still);
    for (uint32_t i = 0; i < config.layers; ++i) {
        CHECK(config.layer[i].rope == (i % 4 == 3 ? 1 : 0));
    }
    CHECK(described(config, "rope_1") == "none");
    CHECK(describe(changed_config(kSmolLM3, {{"no_rope_layers", "<remove>"}})) == describe(config));
    CHECK(changed_config(kSmolLM3, {{"no_rope_layers", "<remove>"}, {"no_rope_layer_interval", 2}})
              .layer[1]
              .rope == 1);
    CHECK(changed_config(kSmolLM3, {{"rope_theta", "<remove>"}}).ropes[0].base == 2e6);
    for (const JsonValue &value :
         std::vector<JsonValue>{3, {1, 1}, {1, 1, 1, 0, 1, 1, 1, 2}, {1, 1, 1, 0, 1, 1, 1, true}}) {
        expect_refused(Status::corrupt, {"no_rope_layers"}, kSmolLM3, {{"no_rope_layers", value}});
    }
    expect_refused(Status::corrupt, {"no_rope_layer_interval"}, kSmolLM3,
                   {{"no_rope_layers", nullptr}, {"no_rope_layer_interval", 0}});
    expect_refused(Status::unsupported, {"use_sliding_window"}, kSmolLM3,
                   {{"use_sliding_window", true}});
}

TEST_CASE("Config: Ministral 3 has YaRN and queries that grow, inside Mistral 3 or alone") {
    const Config config = changed_config(kMinistral3);
    CHECK(config.architecture == "ministral3");
    CHECK(config.tied_head);
    CHECK(config.query_growth == 0.1F);
    CHECK(config.query_growth_context == 16384);
    REQUIRE(config.ropes.size() == 1);
    CHECK(config.ropes[0].scaling == RopeScaling::yarn);
    CHECK(config.ropes[0].amplitude == 1);
    CHECK(described(config, "query_growth") == "0.1, context 16384");
    JsonValue text = JsonValue::parse(kMinistral3)["text_config"];
    text["architectures"] = {"Ministral3ForCausalLM"};
    CHECK(describe(config_of(text.dump())) == describe(config));
    const std::string growth = "/text_config/rope_parameters/llama_4_scaling_beta";
    CHECK(changed_config(kMinistral3, {{growth, "<remove>"}}).query_growth == 0);
    expect_refused(Status::corrupt, {"llama_4_scaling_beta"}, kMinistral3, {{growth, -1}});
    // Mistral Small 3 is Mistral inside.
    const Changes small = {{"/text_config/model_type", "mistral"},
                           {"/text_config/rope_parameters", "<remove>"},
                           {"/text_config/rope_theta", 1e9}};
    CHECK(changed_config(kMinistral3, small).architecture == "mistral");
    expect_refused(Status::unsupported, {"text_config", "gemma"}, kMinistral3,
                   {{"/text_config/model_type", "gemma"}});
}

TEST_CASE("Config: OLMo 3 has norms after its parts, and YaRN where there is no window") {
    const Config config = changed_config(kOlmo3);
    CHECK(config.architecture == "olmo3");
    CHECK(config.joint_norms);
    CHECK(config.query_key_norm);
    CHECK(config.post_norms);
    CHECK_FALSE(config.pre_norms);
    CHECK(described(config, "pre_norms") == "no");
    CHECK(described(config, "joint_norms") == "yes");
    for (uint32_t i = 0; i < config.layers; ++i) {
        const bool global = i % 4 == 3;
        const Rope &rope = config.ropes[config.layer[i].rope];
        CHECK(config.layer[i].window == (global ? 0 : 4096));
        CHECK(rope.base == 5e5);
        CHECK(rope.scaling == (global ? RopeScaling::yarn : RopeScaling::none));
        CHECK(rope.amplitude == (global ? 1.2079441541679836 : 1.0));
    }
    CHECK(describe(changed_config(kOlmo3, {{"rope_theta", "<remove>"}})) == describe(config));
}

TEST_CASE("Config: long RoPE has two sets of factors, for part of a head") {
    const Config config = changed_config(kPhi3, long_rope());
    CHECK(config.head_dim == 8);
    CHECK(config.rotary_dim == 6);
    CHECK(config.long_rope_from() == 4096);
    REQUIRE(config.ropes.size() == 1);
    const Rope &rope = config.ropes[0];
    CHECK(rope.scaling == RopeScaling::longrope);
    CHECK(rope.factors == std::vector<float>{1, 1.5, 2});
    CHECK(rope.long_factors == std::vector<float>{4.25, 8, 16});
    CHECK(rope.amplitude == doctest::Approx(std::sqrt(1 + std::log(32) / std::log(4096))));
    CHECK(described(config, "rope_0")
              .starts_with("base 10000, longrope, original context 4096, amplitude 1.19"));
    CHECK(described(config, "rope_0").ends_with("divided by 1 1.5 2, beyond it by 4.25 8 16"));
    CHECK(changed_config(kPhi3, long_rope({{"attention_factor", 1.5}})).ropes[0].amplitude == 1.5);
    expect_refused(Status::unsupported, {"max_position_embeddings (4096)", "long_factor"}, kPhi3,
                   long_rope(JsonValue::object(), {{"max_position_embeddings", 4096}}));
    for (const char *name : {"su", "yarn"}) { // as files of Phi-3 were written at first
        CHECK(describe(changed_config(kPhi3, long_rope({{"type", name}}))) == describe(config));
    }
    for (const char *key : {"short_factor", "long_factor"}) {
        for (const JsonValue &value : std::vector<JsonValue>{
                 nullptr, 2.0, {1, 2}, {1, 2, 3, 4}, {1, 2, 0}, {1, 2, -1}, {1, 2, "3"}}) {
            expect_refused(Status::corrupt, {"rope_scaling.", key, "3 numbers"}, kPhi3,
                           long_rope({{key, value}}));
        }
    }
    expect_refused(Status::corrupt, {"original_max_position_embeddings"}, kPhi3,
                   long_rope(JsonValue::object(), {{"original_max_position_embeddings", 1}}));
    // No other architecture has it.
    expect_refused(Status::unsupported, {"longrope"}, kTinyLlama,
                   {{"rope_scaling", {{"type", "longrope"}, {"factor", 2.0}}}});
}

} // namespace stasis
