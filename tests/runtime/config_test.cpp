// The meaning of config.json (runtime/model/config.h): published files, those of newer tools,
// defaults, and the canonical description.
#include "runtime/model/config.h"

#include <doctest/doctest.h>

#include <cfenv>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>

#include "tests/data_files.h"
#include "tests/runtime/model_files.h"
#include "tests/runtime/published_configs.h"

namespace stasis {

TEST_CASE("Config: Llama 3.2 1B") {
    const Config config = config_of(kLlama32);
    CHECK(config.architecture == "llama");
    CHECK(config.layers == 16);
    CHECK(config.hidden == 2048);
    CHECK(config.heads == 32);
    CHECK(config.kv_heads == 8);
    CHECK(config.head_dim == 64);
    CHECK(config.intermediate == 8192);
    CHECK(config.vocabulary == 128256);
    CHECK(config.context == 131072);
    CHECK(config.norm_eps == 1e-5F);
    CHECK_FALSE(config.norm_plus_one);
    CHECK_FALSE(config.query_key_norm);
    CHECK_FALSE(config.post_norms);
    CHECK_FALSE(config.attention_bias);
    CHECK_FALSE(config.mlp_bias);
    CHECK(config.tied_head);
    CHECK(config.embedding_scale == 1.0F);
    CHECK(config.attention_scale == 0.125F);
    CHECK(config.attention_softcap == 0.0F);
    CHECK(config.final_softcap == 0.0F);
    CHECK(config.activation == Activation::silu);
    const Rope rope{500000.0, RopeScaling::llama3, 32.0, 1.0, 4.0, 8192};
    CHECK(config.ropes == std::vector<Rope>{rope});
    REQUIRE(config.layer.size() == 16);
    CHECK(config.layer[15].window == 0);
    CHECK(config.bos == std::vector<uint32_t>{128000});
    CHECK(config.end_tokens == std::vector<uint32_t>{128001, 128008, 128009});
}

TEST_CASE("Config: TinyLlama leaves out head_dim, rope_theta and the biases") {
    const Config config = config_of(kTinyLlama);
    CHECK(config.head_dim == 64);
    CHECK(config.kv_heads == 4);
    CHECK_FALSE(config.tied_head);
    CHECK_FALSE(config.attention_bias);
    CHECK(config.ropes == std::vector<Rope>{Rope{}});
    CHECK(config.end_tokens == std::vector<uint32_t>{2});
}

TEST_CASE("Config: a linearly scaled Llama with the old name of rope_type") {
    const Config config = config_of(kLinearLlama);
    CHECK(config.kv_heads == 32);
    CHECK_FALSE(config.tied_head);
    CHECK(config.attention_scale == static_cast<float>(1.0 / std::sqrt(128.0)));
    CHECK(config.ropes == std::vector<Rope>{Rope{10000.0, RopeScaling::linear, 4.0, 1.0, 4.0, 0}});
}

TEST_CASE("Config: Gemma 3 1B") {
    const Config config = config_of(kGemma1b);
    CHECK(config.architecture == "gemma3");
    CHECK(config.layers == 26);
    CHECK(config.heads == 4);
    CHECK(config.kv_heads == 1);
    CHECK(config.head_dim == 256);
    CHECK(config.vocabulary == 262144);
    CHECK(config.context == 32768);
    CHECK(config.norm_plus_one);
    CHECK(config.query_key_norm);
    CHECK(config.post_norms);
    CHECK(config.tied_head);
    CHECK(config.embedding_scale == std::sqrt(1152.0F));
    CHECK(config.attention_scale == 0.0625F);
    CHECK(config.activation == Activation::gelu_tanh);
    REQUIRE(config.ropes.size() == 2);
    for (uint32_t i = 0; i < config.layers; ++i) {
        const bool global = i % 6 == 5;
        CHECK(config.layer[i].window == (global ? 0 : 512));
        CHECK(config.ropes[config.layer[i].rope].base == (global ? 1e6 : 1e4));
        CHECK(config.ropes[config.layer[i].rope].scaling == RopeScaling::none);
    }
    CHECK(config.end_tokens == std::vector<uint32_t>{1, 106});
}

TEST_CASE("Config: Gemma 3 4B inside its multimodal file, most of it left to defaults") {
    const Config config = config_of(kGemma4b);
    CHECK(config.architecture == "gemma3");
    CHECK(config.layers == 34);
    CHECK(config.hidden == 2560);
    CHECK(config.heads == 8);
    CHECK(config.kv_heads == 4);
    CHECK(config.head_dim == 256);
    CHECK(config.intermediate == 10240);
    CHECK(config.vocabulary == 262208);
    CHECK(config.context == 131072);
    CHECK(config.norm_eps == 1e-6F);
    CHECK(config.tied_head);
    CHECK(config.attention_scale == 0.0625F);
    CHECK(config.embedding_scale == std::sqrt(2560.0F));
    for (uint32_t i = 0; i < config.layers; ++i) {
        const bool global = i % 6 == 5;
        CHECK(config.layer[i].window == (global ? 0 : 1024));
        const Rope &rope = config.ropes[config.layer[i].rope];
        // Scaling is about the global layers only.
        CHECK(rope.scaling == (global ? RopeScaling::linear : RopeScaling::none));
        CHECK(rope.factor == (global ? 8.0 : 1.0));
        CHECK(rope.base == (global ? 1e6 : 1e4));
    }
    CHECK(config.bos == std::vector<uint32_t>{2});
    CHECK(config.end_tokens == std::vector<uint32_t>{1, 106});
    CHECK_FALSE(config_of(changed(kGemma4b, {{"tie_word_embeddings", false}})).tied_head);
    CHECK(config_of(changed(kGemma4b, {{"tie_word_embeddings", false},
                                       {"/text_config/tie_word_embeddings", true}}))
              .tied_head);
}

TEST_CASE("Config: the published form and that of transformers 5 mean the same") {
    const JsonValue scaling = JsonValue::parse(kLlama32).at("rope_scaling");
    JsonValue parameters = scaling;
    parameters["rope_theta"] = 500000.0;
    CHECK(describe(config_of(kLlama32)) ==
          describe(config_of(changed(kLlama32, {{"rope_scaling", "<remove>"},
                                                {"rope_theta", "<remove>"},
                                                {"torch_dtype", "<remove>"},
                                                {"dtype", "bfloat16"},
                                                {"rope_parameters", parameters}}))));
    // The base may also stay beside flat parameters.
    CHECK(describe(config_of(kLlama32)) ==
          describe(config_of(
              changed(kLlama32, {{"rope_scaling", "<remove>"}, {"rope_parameters", scaling}}))));

    std::vector<std::string> types(34, "sliding_attention");
    for (size_t i = 5; i < types.size(); i += 6) {
        types[i] = "full_attention";
    }
    const JsonValue by_type = {
        {"full_attention", {{"rope_theta", 1e6}, {"rope_type", "linear"}, {"factor", 8.0}}},
        {"sliding_attention", {{"rope_theta", 10000}, {"rope_type", "default"}}}};
    CHECK(describe(config_of(kGemma4b)) ==
          describe(config_of(changed(kGemma4b, {{"/text_config/rope_scaling", "<remove>"},
                                                {"/text_config/rope_parameters", by_type},
                                                {"/text_config/_sliding_window_pattern", 3},
                                                {"/text_config/layer_types", types}}))));
    // Flat parameters are about the global layers.
    const JsonValue flat = {{"rope_theta", 1e6}, {"rope_type", "linear"}, {"factor", 8.0}};
    CHECK(describe(config_of(kGemma4b)) ==
          describe(config_of(changed(kGemma4b, {{"/text_config/rope_scaling", "<remove>"},
                                                {"/text_config/rope_parameters", flat}}))));
    // Bases from outside where the parameters of a layer type have none.
    const JsonValue bare = {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}}}};
    const Config local = config_of(changed(kGemma4b, {{"/text_config/rope_scaling", "<remove>"},
                                                      {"/text_config/rope_parameters", bare},
                                                      {"/text_config/rope_theta", 3e6},
                                                      {"/text_config/rope_local_base_freq", 2e4}}));
    CHECK(local.ropes[local.layer[0].rope].base == 2e4);
    CHECK(local.ropes[local.layer[5].rope].base == 3e6);
    CHECK(local.ropes[local.layer[5].rope].factor == 8.0);
}

TEST_CASE("Config: layer patterns") {
    const Config third = config_of(changed(
        kGemma1b, {{"sliding_window_pattern", "<remove>"}, {"_sliding_window_pattern", 3}}));
    CHECK(third.layer[2].window == 0);
    CHECK(third.layer[3].window == 512);
    const Config global = config_of(changed(kGemma1b, {{"sliding_window_pattern", 1}}));
    CHECK(global.ropes.size() == 1); // no layer uses the local one
    CHECK(global.layer[0].window == 0);
}

TEST_CASE("Config: what Gemma 3 may ask for beyond the published models") {
    const Config config = config_of(changed(kGemma1b, {{"attn_logit_softcapping", 50.0},
                                                       {"final_logit_softcapping", 30},
                                                       {"query_pre_attn_scalar", 168},
                                                       {"attention_bias", true},
                                                       {"tie_word_embeddings", false}}));
    CHECK(config.attention_softcap == 50.0F);
    CHECK(config.final_softcap == 30.0F);
    CHECK(config.attention_scale == static_cast<float>(1.0 / std::sqrt(168.0)));
    CHECK(config.attention_bias);
    CHECK_FALSE(config.tied_head);
}

TEST_CASE("Config: generation_config.json goes first for the ids, null means none") {
    const auto ends = [](const char *config, const char *generation) {
        return parse_config(config, generation).end_tokens;
    };
    using Ids = std::vector<uint32_t>;
    CHECK(ends(kTinyLlama, R"({"eos_token_id":[5,7]})") == Ids{5, 7});
    CHECK(ends(kTinyLlama, R"({"eos_token_id":[7,5,7,5]})") == Ids{7, 5}); // once each
    CHECK(ends(kTinyLlama, R"({"eos_token_id":9})") == Ids{9});
    CHECK(ends(kTinyLlama, R"({"eos_token_id":null})") == Ids{2});
    CHECK(ends(kTinyLlama, R"({"bos_token_id":1})") == Ids{2});
    const std::string none = changed(kTinyLlama, {{"eos_token_id", nullptr}});
    CHECK(config_of(none).end_tokens.empty());
    const std::string absent = changed(kTinyLlama, {{"eos_token_id", "<remove>"}});
    CHECK(config_of(absent).end_tokens == Ids{2});
    CHECK(parse_config(kTinyLlama, R"({"bos_token_id":3})").bos == Ids{3});
    expect_error(Status::corrupt, {"generation_config.json", "eos_token_id", "32000"},
                 [&] { ends(kTinyLlama, R"({"eos_token_id":[2,32000]})"); });
    expect_error(Status::corrupt, {"generation_config.json", "JSON"},
                 [&] { ends(kTinyLlama, "{"); });
}

TEST_CASE("Config: the description tells apart what computes differently, and nothing else") {
    const auto description = [](const std::map<std::string, JsonValue> &changes) {
        return describe(config_of(changed(kGemma1b, changes)));
    };
    const auto published = description({});
    for (const std::pair<const std::string, JsonValue> &field : std::map<std::string, JsonValue>{
             {"torch_dtype", "float32"},
             {"eos_token_id", 7},
             {"initializer_range", 1},
             {"rope_scaling", {{"rope_type", "linear"}, {"factor", 1.0}}}}) {
        CAPTURE(field.first);
        CHECK(description({field}) == published);
    }
    for (const std::pair<const std::string, JsonValue> &field : std::map<std::string, JsonValue>{
             {"hidden_size", 1153},
             {"num_hidden_layers", 27},
             {"num_attention_heads", 8},
             {"num_key_value_heads", 2},
             {"head_dim", 128},
             {"intermediate_size", 6913},
             {"vocab_size", 262145},
             {"max_position_embeddings", 32769},
             {"rms_norm_eps", 1.0001e-6},
             {"rope_theta", 1000000.001},
             {"rope_local_base_freq", 10001},
             {"sliding_window", 511},
             {"sliding_window_pattern", 5},
             {"query_pre_attn_scalar", 256.001},
             {"attn_logit_softcapping", 50},
             {"final_logit_softcapping", 30},
             {"attention_bias", true},
             {"tie_word_embeddings", false},
             {"hidden_activation", "silu"},
             {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}}) {
        CAPTURE(field.first);
        CHECK(description({field}) != published);
    }
    for (const char *key :
         {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
        CAPTURE(key);
        CHECK(describe(config_of(changed(kLlama32, {{std::string("/rope_scaling/") + key, 3}}))) !=
              describe(config_of(kLlama32)));
    }
}

TEST_CASE("Config: C2: the host's rounding mode does not change a config") {
    const char *models[] = {kLlama32, kGemma1b, kGemma4b, kLinearLlama};
    for (const char *model : models) {
        const std::string text =
            changed(model, {{"rms_norm_eps", 1.1e-5}, {"query_pre_attn_scalar", 168.1}});
        const Config nearest = config_of(text);
        const auto expected = describe(nearest);
        for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
            REQUIRE(std::fesetround(mode) == 0);
            const Config config = config_of(text);
            const auto description = describe(config);
            const int mode_after = std::fegetround();
            std::fesetround(FE_TONEAREST);
            CHECK(mode_after == mode);
            CHECK(description == expected);
            CHECK(config.norm_eps == nearest.norm_eps);
            CHECK(config.attention_scale == nearest.attention_scale);
        }
    }
}

TEST_CASE("Config: files of a directory") {
    const TemporaryDirectory directory;
    expect_error(Status::not_found, {"config.json"}, [&] { read_config(directory.path()); });
    write_bytes(directory.file("config.json"), kTinyLlama);
    CHECK(read_config(directory.path()).end_tokens == std::vector<uint32_t>{2});
    write_bytes(directory.file("generation_config.json"), R"({"eos_token_id":[3,4]})");
    CHECK(read_config(directory.path()).end_tokens == std::vector<uint32_t>{3, 4});
    std::filesystem::remove(directory.file("generation_config.json"));
    std::filesystem::create_directory(directory.file("generation_config.json"));
    expect_error(Status::io, {"generation_config.json"}, [&] { read_config(directory.path()); });
}

TEST_CASE("Config: the bundled models") {
    const Config gemma = read_config(test_data("recall-gemma3"));
    CHECK(gemma.layers == 12);
    CHECK(gemma.layer[0].window == 64);
    CHECK(gemma.layer[5].window == 0);
    CHECK(gemma.end_tokens == std::vector<uint32_t>{1, 5});
    const Config llama = read_config(test_data("recall-llama"));
    CHECK(llama.layers == 8);
    CHECK(llama.kv_heads == 2);
    CHECK(llama.end_tokens == std::vector<uint32_t>{2, 4});
    const Config multimodal = read_config(test_data("zoo/gemma3-multimodal-prefix"));
    CHECK(multimodal.norm_eps == 0.01F);
    CHECK(multimodal.attention_scale == static_cast<float>(1.0 / std::sqrt(48.0)));
}

} // namespace stasis
