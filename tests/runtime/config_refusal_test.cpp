// Refusals of config.json (runtime/model/config.h): by name, and with the field.
#include "runtime/model/config.h"

#include <doctest/doctest.h>

#include <map>
#include <string>

#include "tests/runtime/model_files.h"
#include "tests/runtime/published_configs.h"

namespace stasis {

TEST_CASE("Config: insight 58: architectures that are not built are refused by name") {
    for (const auto &[type, name] :
         std::map<std::string, std::string>{{"bloom", "BloomForCausalLM"},
                                            {"mpt", "MPTForCausalLM"},
                                            {"qwen2_moe", "Qwen2MoeForCausalLM"},
                                            {"qwen3", "Qwen2ForCausalLM"},
                                            {"mistral4", "Mistral4ForConditionalGeneration"},
                                            {"phi3small", "Phi3SmallForCausalLM"},
                                            {"gemma2", "Gemma2ForCausalLM"},
                                            {"llama", "LlamaForSequenceClassification"},
                                            {"gemma3_text", "Gemma3ForSequenceClassification"},
                                            {"falcon", "LlamaForCausalLM"}}) {
        expect_refused(Status::unsupported, {type, name}, kTinyLlama,
                       {{"model_type", type}, {"architectures", {name}}});
    }
    expect_refused(Status::unsupported, {"alibi"}, kTinyLlama, {{"alibi", true}});
    expect_refused(Status::unsupported, {"model_type"}, kTinyLlama, {{"model_type", "<remove>"}});
}

TEST_CASE("Config: what is not built is refused by name") {
    for (const char *type : {"dynamic", "longrope", "su", "mrope", "proportional"}) {
        expect_refused(Status::unsupported, {type, "rope_scaling"}, kLinearLlama,
                       {{"rope_scaling", {{"rope_type", type}, {"factor", 2.0}}}});
    }
    for (const char *name : {"gelu", "gelu_new", "relu2"}) {
        expect_refused(Status::unsupported, {name}, kTinyLlama, {{"hidden_act", name}});
        expect_refused(Status::unsupported, {name}, kGemma1b, {{"hidden_activation", name}});
    }
    expect_refused(Status::unsupported, {"quantization_config", "gptq"}, kTinyLlama,
                   {{"quantization_config", {{"quant_method", "gptq"}}}});
    expect_refused(Status::unsupported, {"use_bidirectional_attention"}, kTinyLlama,
                   {{"use_bidirectional_attention", true}});
    expect_refused(Status::unsupported, {"text_config", "use_bidirectional_attention"}, kGemma4b,
                   {{"/text_config/use_bidirectional_attention", true}});
    expect_refused(Status::unsupported, {"text_config", "gemma2"}, kGemma4b,
                   {{"/text_config/model_type", "gemma2"}});
    expect_refused(Status::unsupported, {"partial_rotary_factor"}, kTinyLlama,
                   {{"partial_rotary_factor", 0.5}});
    expect_refused(Status::unsupported, {"layer_types[0]", "chunked_attention"}, kGemma1b,
                   {{"layer_types", std::vector<std::string>(26, "chunked_attention")}});
}

TEST_CASE("Config: impossible values are refused with their field") {
    for (const char *key :
         {"num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
          "head_dim", "intermediate_size", "vocab_size", "max_position_embeddings"}) {
        for (const JsonValue &value :
             std::vector<JsonValue>{0, -1, 1.5, "8", true, JsonValue::array({1}), 4294967296,
                                    18446744073709551615U, 1e300}) {
            expect_refused(Status::corrupt, {"config.json: ", key}, kLlama32, {{key, value}});
        }
    }
    for (const char *key : {"num_hidden_layers", "hidden_size", "num_attention_heads",
                            "intermediate_size", "vocab_size"}) {
        expect_refused(Status::corrupt, {key, "nothing"}, kTinyLlama, {{key, "<remove>"}});
    }
    for (const JsonValue &value : std::vector<JsonValue>{0, -1e-5, "1", 1e300, 1e-300}) {
        expect_refused(Status::corrupt, {"rms_norm_eps"}, kTinyLlama, {{"rms_norm_eps", value}});
        expect_refused(Status::corrupt, {"rope_theta"}, kTinyLlama, {{"rope_theta", value}});
        expect_refused(Status::corrupt, {"rope_scaling.factor"}, kLinearLlama,
                       {{"/rope_scaling/factor", value}});
    }
    expect_refused(Status::corrupt, {"num_key_value_heads"}, kTinyLlama,
                   {{"num_key_value_heads", 5}});
    expect_refused(Status::corrupt, {"head_dim"}, kLlama32, {{"head_dim", 63}});
    expect_refused(Status::corrupt, {"hidden_size"}, kTinyLlama, {{"num_attention_heads", 36}});
    expect_refused(Status::corrupt, {"head_dim"}, kLlama32, {{"head_dim", 1U << 20}});
    expect_refused(Status::corrupt, {"num_hidden_layers"}, kTinyLlama,
                   {{"num_hidden_layers", 1025}});
    expect_refused(Status::corrupt, {"tie_word_embeddings"}, kTinyLlama,
                   {{"tie_word_embeddings", "yes"}});
    expect_refused(Status::corrupt, {"high_freq_factor"}, kLlama32,
                   {{"/rope_scaling/high_freq_factor", 1.0}});
    expect_refused(Status::corrupt, {"original_max_position_embeddings"}, kLlama32,
                   {{"/rope_scaling/original_max_position_embeddings", "<remove>"}});
    const JsonValue yarn = {
        {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 512}};
    for (const JsonValue &change :
         std::vector<JsonValue>{{{"factor", 0}},
                                {{"original_max_position_embeddings", 0}},
                                {{"original_max_position_embeddings", nullptr}},
                                {{"beta_fast", 0.5}}, // below beta_slow
                                {{"beta_slow", -1}},
                                {{"attention_factor", -1}},
                                {{"mscale", -1}},
                                {{"mscale_all_dim", "1"}},
                                {{"truncate", 1}}}) {
        JsonValue scaling = yarn;
        scaling.update(change);
        expect_refused(Status::corrupt, {"rope_scaling.", change.begin().key()}, kTinyLlama,
                       {{"rope_scaling", scaling}});
    }
    expect_refused(Status::corrupt, {"rope_theta", "logarithm"}, kTinyLlama,
                   {{"rope_scaling", yarn}, {"rope_theta", 1.0}});
    expect_refused(Status::corrupt, {"rope_scaling"}, kTinyLlama, {{"rope_scaling", 4}});
    expect_refused(Status::corrupt, {"contradict"}, kLinearLlama,
                   {{"rope_parameters", {{"rope_type", "linear"}, {"factor", 2.0}}}});
    expect_refused(Status::corrupt, {"layer_types"}, kGemma1b,
                   {{"layer_types", {"full_attention"}}});
    expect_refused(Status::corrupt, {"eos_token_id", "-1"}, kTinyLlama, {{"eos_token_id", -1}});
    expect_refused(Status::corrupt, {"bos_token_id"}, kTinyLlama, {{"bos_token_id", {1, 2}}});
    expect_refused(Status::corrupt, {"text_config"}, kGemma4b, {{"text_config", "<remove>"}});
    expect_refused(Status::corrupt, {"architectures"}, kTinyLlama,
                   {{"architectures", {"LlamaForCausalLM", "LlamaForCausalLM"}}});
    expect_error(Status::corrupt, {"\"vocab_size\" twice"},
                 [] { config_of(R"({"vocab_size":1,"vocab_size":2})"); });
}

TEST_CASE("Config: every truncation and flipped bit ends in a config or an error") {
    const std::string text = JsonValue::parse(kGemma4b).dump();
    for (size_t size = 0; size < text.size(); ++size) {
        expect_error(Status::corrupt, {}, [&] { config_of(text.substr(0, size)); });
    }
    size_t refused = 0;
    for (size_t bit = 0; bit < text.size() * 8; ++bit) {
        std::string flipped = text;
        flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
        try {
            describe(config_of(flipped));
        } catch (const Error &error) {
            CHECK((error.status() == Status::corrupt || error.status() == Status::unsupported));
            ++refused;
        }
    }
    CHECK(refused > 1000);
}

} // namespace stasis
