// config.json of the architectures that are shaped like Llama (Qwen2, Qwen3, Mistral, Phi-3) and
// of the hybrid Qwen3.5; what they mean, in old and new files, and what is refused.
#include "runtime/model/config.h"

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <string>

#include "tests/data_files.h"
#include "tests/runtime/model_files.h"
#include "tests/runtime/published_configs.h"

namespace stasis {

namespace {

std::vector<uint32_t> windows(const Config &config) {
    std::vector<uint32_t> windows;
    for (const LayerConfig &layer : config.layer) {
        windows.push_back(layer.window);
    }
    return windows;
}

// The file as transformers 5 writes it.
Changes in_new_form(double base, const Changes &more = {}) {
    Changes changes = {{"rope_theta", "<remove>"},
                       {"torch_dtype", "<remove>"},
                       {"dtype", "bfloat16"},
                       {"rope_parameters", {{"rope_theta", base}, {"rope_type", "default"}}}};
    changes.insert(more.begin(), more.end());
    return changes;
}

std::vector<std::string> types(size_t layers, size_t first_local) {
    std::vector<std::string> types(layers, "full_attention");
    for (size_t i = first_local; i < layers; ++i) {
        types[i] = "sliding_attention";
    }
    return types;
}

} // namespace

TEST_CASE("Config: Qwen2.5 0.5B has biases on query, key and value, and no windows") {
    const Config config = changed_config(kQwen25);
    CHECK(config.architecture == "qwen2");
    CHECK(config.layers == 24);
    CHECK(config.heads == 14);
    CHECK(config.kv_heads == 2);
    CHECK(config.head_dim == 64);
    CHECK(config.attention_bias);
    CHECK_FALSE(config.output_bias);
    CHECK_FALSE(config.mlp_bias);
    CHECK_FALSE(config.query_key_norm);
    CHECK_FALSE(config.norm_plus_one);
    CHECK(config.tied_head);
    CHECK(config.attention_scale == 0.125F);
    CHECK(config.ropes == std::vector<Rope>{Rope{1e6}});
    CHECK(windows(config) == std::vector<uint32_t>(24, 0));
    CHECK(config.bos == std::vector<uint32_t>{151643});
    CHECK(config.end_tokens == std::vector<uint32_t>{151645});
    CHECK(described(config, "attention_bias") == "query, key, value");
    // Ids that no file gives are none, not Llama's.
    const Config bare =
        changed_config(kQwen25, {{"bos_token_id", "<remove>"}, {"eos_token_id", "<remove>"}});
    CHECK(bare.bos.empty());
    CHECK(bare.end_tokens.empty());
}

TEST_CASE("Config: Qwen3 0.6B has norms of query and key, and its own head_dim") {
    const Config config = changed_config(kQwen3);
    CHECK(config.architecture == "qwen3");
    CHECK(config.head_dim == 128);
    CHECK(config.kv_heads == 8);
    CHECK(config.query_key_norm);
    CHECK_FALSE(config.post_norms);
    CHECK_FALSE(config.norm_plus_one);
    CHECK_FALSE(config.attention_bias);
    CHECK(config.context == 40960);
    CHECK(config.attention_scale == static_cast<float>(1.0 / std::sqrt(128.0)));
    CHECK(changed_config(kQwen3, {{"head_dim", "<remove>"}}).head_dim == 128);
    const Config biased = changed_config(kQwen3, {{"attention_bias", true}});
    CHECK(biased.attention_bias);
    CHECK(biased.output_bias);
    CHECK(described(biased, "attention_bias") == "yes");
}

TEST_CASE("Config: Mistral has its window in all layers, or none") {
    const Config config = changed_config(kMistral);
    CHECK(config.architecture == "mistral");
    CHECK(config.head_dim == 128);
    CHECK(config.kv_heads == 8);
    CHECK_FALSE(config.attention_bias);
    CHECK(config.ropes == std::vector<Rope>{Rope{}});
    CHECK(windows(config) == std::vector<uint32_t>(32, 4096));
    CHECK(windows(changed_config(kMistral, {{"sliding_window", "<remove>"}})) ==
          std::vector<uint32_t>(32, 4096));
    CHECK(windows(changed_config(kMistral, {{"sliding_window", nullptr}})) ==
          std::vector<uint32_t>(32, 0));
    CHECK(changed_config(kMistral, {{"hidden_size", 5120}, {"head_dim", 128}}).head_dim == 128);
    CHECK(changed_config(kMistral, {{"num_key_value_heads", "<remove>"}}).kv_heads == 8);
    CHECK(changed_config(kMistral, {{"num_key_value_heads", nullptr}}).kv_heads == 32);
}

TEST_CASE("Config: Phi-3 mini with the context of 4k") {
    const Config config = changed_config(kPhi3);
    CHECK(config.architecture == "phi3");
    CHECK(config.fused_tensors);
    CHECK(config.head_dim == 96);
    CHECK(config.context == 4096);
    CHECK(config.norm_eps == 1e-5F);
    CHECK(windows(config) == std::vector<uint32_t>(32, 2047));
    CHECK(windows(changed_config(kPhi3, {{"sliding_window", "<remove>"}})) ==
          std::vector<uint32_t>(32, 0));
    CHECK(config.end_tokens == std::vector<uint32_t>{32000});
    expect_refused(Status::unsupported, {"rope_scaling", "dynamic"}, kPhi3,
                   {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}});
    expect_refused(Status::unsupported, {"phi3"}, kPhi3, // which Llama models may have
                   {{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}});
    CHECK(changed_config(kPhi3, {{"partial_rotary_factor", 0.75}}).rotary_dim == 72);
    CHECK(config.rotary_dim == 0);
    CHECK(config.long_rope_from() == 0);
}

TEST_CASE("Config: Qwen's windows are in the layers from max_window_layers on, if in use") {
    const Changes on = {{"use_sliding_window", true}, {"sliding_window", 64}};
    const auto with = [&](Changes more) {
        more.insert(on.begin(), on.end());
        return more;
    };
    std::vector<uint32_t> expected(24, 0);
    expected[21] = expected[22] = expected[23] = 64;
    CHECK(windows(changed_config(kQwen25, on)) == expected);
    CHECK(windows(changed_config(kQwen25, with({{"max_window_layers", 0}}))) ==
          std::vector<uint32_t>(24, 64));
    for (const JsonValue &beyond :
         {JsonValue(24), JsonValue(70), JsonValue("<remove>")}) { // 28 where absent
        CHECK(windows(changed_config(kQwen25, with({{"max_window_layers", beyond}}))) ==
              std::vector<uint32_t>(24, 0));
    }
    // Layer types go first.
    CHECK(windows(changed_config(kQwen25, with({{"layer_types", types(24, 23)}})))[22] == 0);
    CHECK(windows(changed_config(kQwen25, with({{"layer_types", types(24, 23)}})))[23] == 64);
    CHECK(windows(changed_config(kQwen25, {{"use_sliding_window", true},
                                           {"sliding_window", "<remove>"},
                                           {"max_window_layers", 23}}))[23] == 4096);

    expect_refused(Status::corrupt, {"layer_types", "use_sliding_window"}, kQwen25,
                   {{"layer_types", types(24, 21)}});
    expect_refused(Status::corrupt, {"sliding_window", "use_sliding_window"}, kQwen3,
                   {{"use_sliding_window", true}});
    expect_refused(Status::corrupt, {"layer_types"}, kQwen25,
                   with({{"layer_types", types(23, 0)}}));
    expect_refused(Status::corrupt, {"max_window_layers", "-1"}, kQwen25,
                   with({{"max_window_layers", -1}}));
    expect_refused(Status::corrupt, {"use_sliding_window"}, kQwen25, {{"use_sliding_window", 1}});
    expect_refused(Status::unsupported, {"use_mrope"}, kQwen25, {{"use_mrope", true}});
    expect_refused(Status::unsupported, {"dynamic"}, kQwen25,
                   {{"rope_scaling", {{"type", "dynamic"}, {"factor", 4.0}}}});
}

TEST_CASE("Config: old and new files of these families mean the same") {
    CHECK(describe(changed_config(kQwen25)) ==
          describe(changed_config(kQwen25, in_new_form(1e6, {{"layer_types", types(24, 24)}}))));
    CHECK(describe(changed_config(kQwen3)) ==
          describe(changed_config(kQwen3, in_new_form(1e6, {{"layer_types", types(28, 28)}}))));
    CHECK(describe(changed_config(kMistral)) ==
          describe(changed_config(kMistral, in_new_form(1e4))));
    CHECK(describe(changed_config(kMistral)) ==
          describe(changed_config(kMistral, in_new_form(1e4, {{"layer_types", types(32, 0)}}))));
    CHECK(describe(changed_config(kPhi3)) ==
          describe(changed_config(kPhi3, in_new_form(1e4, {{"rope_scaling", "<remove>"}}))));
    Changes local =
        in_new_form(1e6, {{"use_sliding_window", true}, {"layer_types", types(24, 21)}});
    CHECK(describe(changed_config(kQwen25, {{"use_sliding_window", true}})) ==
          describe(changed_config(kQwen25, local)));
    CHECK(changed_config(kMistral, in_new_form(5e5)).ropes == std::vector<Rope>{Rope{5e5}});
}

TEST_CASE("Config: layer types that contradict an architecture are refused") {
    expect_refused(Status::corrupt, {"layer_types", "sliding_window"}, kMistral,
                   {{"layer_types", types(32, 16)}});
    expect_refused(Status::corrupt, {"layer_types", "no layer has a window"}, kMistral,
                   {{"layer_types", types(32, 0)}, {"sliding_window", nullptr}});
    expect_refused(Status::corrupt, {"layer_types", "no layer has a window"}, kTinyLlama,
                   {{"layer_types", types(22, 0)}});
    expect_refused(Status::unsupported, {"layer_types[0]", "chunked_attention"}, kTinyLlama,
                   {{"layer_types", std::vector<std::string>(22, "chunked_attention")}});
    expect_refused(Status::corrupt, {"sliding_window"}, kMistral, {{"sliding_window", 0}});
    const JsonValue by_type = {{"full_attention", {{"rope_theta", 1e6}}},
                               {"sliding_attention", {{"rope_theta", 1e4}}}};
    for (const char *text : {kMistral, kQwen3, kTinyLlama}) {
        expect_refused(Status::unsupported, {"rope_parameters", "sliding_attention"}, text,
                       {{"rope_scaling", nullptr}, {"rope_parameters", by_type}});
    }
}

TEST_CASE("Config: Qwen3 MoE has experts in place of one MLP, in the layers that say so") {
    const Config config = changed_config(kQwen3Moe);
    CHECK(config.architecture == "qwen3_moe");
    CHECK(config.query_key_norm);
    CHECK(config.head_dim == 128);
    CHECK(config.experts.count == 128);
    CHECK(config.experts.chosen == 8);
    CHECK(config.experts.intermediate == 768);
    CHECK(config.experts.shared == 0);
    CHECK(config.experts.renormalised);
    CHECK(described(config, "experts") == "128, 8 chosen, intermediate 768, renormalised");
    const auto with_experts = [](const Changes &changes) {
        std::string layers;
        for (const LayerConfig &layer : changed_config(kQwen3Moe, changes).layer) {
            layers += layer.experts ? '1' : '0';
        }
        return layers.substr(0, 6);
    };
    CHECK(with_experts({}) == "111111");
    CHECK(with_experts({{"decoder_sparse_step", 2}}) == "010101");
    CHECK(with_experts({{"mlp_only_layers", {0, 4}}}) == "011101");
    CHECK(with_experts({{"decoder_sparse_step", 3}, {"mlp_only_layers", {2}}}) == "000001");
    CHECK(!changed_config(kQwen3Moe, {{"norm_topk_prob", "<remove>"}}).experts.renormalised);
    // Other families are described as before.
    CHECK(described(changed_config(kQwen3), "experts").empty());
    CHECK(described(changed_config(kQwen3), "layer_experts").empty());

    const auto refused = [](const char *key, const JsonValue &value, const char *named) {
        expect_refused(Status::corrupt, {named}, kQwen3Moe, {{key, value}});
    };
    refused("num_experts", 0, "num_experts");
    refused("num_experts", 1 << 20, "num_experts");
    refused("num_experts", 7, "num_experts_per_tok: expected at most num_experts, 7");
    refused("num_experts_per_tok", 129, "at most num_experts, 128");
    refused("moe_intermediate_size", 0, "moe_intermediate_size");
    refused("decoder_sparse_step", 0, "decoder_sparse_step");
    refused("mlp_only_layers", 3, "mlp_only_layers");
    refused("mlp_only_layers", {48}, "mlp_only_layers");
    refused("norm_topk_prob", "yes", "norm_topk_prob");
}

TEST_CASE("Config: YaRN in a config.json, with its defaults and its amplitude") {
    const auto yarn = [](const JsonValue &more) {
        JsonValue scaling = {
            {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}};
        scaling.update(more);
        return changed_config(kQwen3, {{"rope_scaling", scaling}});
    };
    const Rope rope = yarn(JsonValue::object()).ropes[0];
    CHECK(rope.scaling == RopeScaling::yarn);
    CHECK(rope.base == 1e6);
    CHECK(rope.factor == 4);
    CHECK(rope.original_context == 32768);
    CHECK(rope.turns_fast == 32);
    CHECK(rope.turns_slow == 1);
    CHECK(rope.whole_bounds);
    CHECK(rope.amplitude == doctest::Approx(0.1 * std::log(4) + 1));
    CHECK(yarn({{"attention_factor", 1.5}}).ropes[0].amplitude == 1.5);
    CHECK(yarn({{"mscale", 1.0}, {"mscale_all_dim", 1.0}}).ropes[0].amplitude == 1);
    CHECK(yarn({{"mscale", 1.0}, {"mscale_all_dim", 0}}).ropes[0].amplitude == rope.amplitude);
    CHECK(yarn({{"mscale", 0.707}, {"mscale_all_dim", 1.0}}).ropes[0].amplitude < 1);
    CHECK(described(yarn({{"truncate", false}, {"attention_factor", 1.5}}), "rope_0") ==
          "base 1e+06, yarn, factor 4, fast 32, slow 1, between pairs, original context 32768, "
          "amplitude 1.5");
}

TEST_CASE("Config: Qwen3.5 is a hybrid of recurrent layers and gated attention") {
    const Config config = changed_config(kQwen35);
    CHECK(config.architecture == "qwen3_5");
    CHECK(config.heads == 8);
    CHECK(config.kv_heads == 2);
    CHECK(config.head_dim == 256);
    CHECK(config.norm_plus_one);
    CHECK(config.query_key_norm);
    CHECK(config.output_gate);
    CHECK(config.tied_head);
    CHECK(config.rotary_dim == 64);
    CHECK(config.rotary() == 64);
    CHECK(config.ropes == std::vector<Rope>{Rope{1e7}});
    CHECK(config.end_tokens == std::vector<uint32_t>{248044});
    CHECK(config.bos.empty());
    CHECK(config.recurrent.key_heads == 16);
    CHECK(config.recurrent.channels() == 8192);
    CHECK(config.recurrent.state_size() == 3 * 8192 + 32 * 128 * 128);
    for (uint32_t i = 0; i < config.layers; ++i) {
        CHECK(config.layer[i].recurrent == (i % 4 != 3));
    }
    CHECK(described(config, "recurrent") == "key heads 16 of 128, value heads 32 of 128, 4 taps");
    CHECK(described(config, "layer_recurrent") == "1 1 1 0 1 1 1 0");
    CHECK(described(config, "output_gate") == "yes");
    CHECK(described(config, "rotary_dim") == "64");
    // Other families are described as before.
    for (const char *name : {"output_gate", "rotary_dim", "recurrent", "layer_recurrent"}) {
        CHECK(described(changed_config(kQwen3), name).empty());
    }
}

TEST_CASE("Config: files of Qwen3.5 with and without some fields mean the same") {
    const auto config = describe(changed_config(kQwen35));
    CHECK(describe(changed_config(kQwen35, {{"/text_config/layer_types", "<remove>"}})) == config);
    CHECK(describe(changed_config(kQwen35, {{"/text_config/layer_types", "<remove>"},
                                            {"/text_config/full_attention_interval", "<remove>"},
                                            {"/text_config/attn_output_gate", "<remove>"},
                                            {"/text_config/tie_word_embeddings", "<remove>"}})) ==
          config);
    // The text model alone is described alike.
    JsonValue text = JsonValue::parse(kQwen35)["text_config"];
    text["architectures"] = {"Qwen3_5ForCausalLM"};
    CHECK(describe(config_of(text.dump())) == config);
    // The part that RoPE turns may stand beside the RoPE's object; where no field says it, it is a
    // quarter.
    const std::string part = "/text_config/rope_parameters/partial_rotary_factor";
    const Changes beside = {{part, "<remove>"}, {"/text_config/partial_rotary_factor", 0.5}};
    CHECK(changed_config(kQwen35, {{part, "<remove>"}}).rotary_dim == 64);
    CHECK(changed_config(kQwen35, beside).rotary_dim == 128);
    CHECK(changed_config(kQwen35, {{part, 1.0}}).rotary_dim == 0);
}

TEST_CASE("Config: an MTP head of Qwen3.5 is described, and does not change what the model is") {
    const auto changed = [](const char *field, const JsonValue &value) {
        return changed_config(kQwen35, {{std::string("/text_config/") + field, value}});
    };
    const Config config = changed_config(kQwen35);
    CHECK(config.mtp_layers == 1);
    CHECK_FALSE(mtp_layer(config).recurrent);
    CHECK(changed("mtp_num_hidden_layers", 0).mtp_layers == 0);
    CHECK(changed("mtp_num_hidden_layers", "<remove>").mtp_layers == 0);
    CHECK(changed("mtp_use_dedicated_embeddings", true).mtp_layers == 0);
    CHECK(describe(changed("mtp_num_hidden_layers", 0)) == describe(config));
    expect_refused(Status::corrupt, {"mtp_num_hidden_layers"}, kQwen35,
                   {{"/text_config/mtp_num_hidden_layers", -1}});
}

TEST_CASE("Config: gpt-oss 20B has sinks, experts with biases, and every other layer a window") {
    const Config config = changed_config(kGptOss20b);
    CHECK(config.architecture == "gpt_oss");
    CHECK(config.head_dim == 64);
    CHECK(config.attention_sinks);
    CHECK(config.output_bias);
    CHECK(config.mlp_bias);
    CHECK(config.gate_limit == 7.0F);
    CHECK(config.experts.by_column);
    CHECK(described(config, "experts") ==
          "32, 4 chosen, intermediate 2880, renormalised, router with biases");
    CHECK(described(config, "attention_sinks") == "yes");
    CHECK(described(config, "gate_limit") == "7");
    CHECK(described(changed_config(kQwen3Moe), "attention_sinks").empty());
    CHECK(described(changed_config(kQwen3Moe), "gate_limit").empty());
    std::vector<uint32_t> every_other;
    std::vector<std::string> kinds;
    for (size_t i = 0; i < 24; ++i) {
        every_other.push_back(i % 2 == 0 ? 128 : 0);
        kinds.emplace_back(i % 2 == 0 ? "sliding_attention" : "full_attention");
        CHECK(config.layer[i].experts);
    }
    CHECK(windows(config) == every_other);
    CHECK(windows(changed_config(kGptOss20b, {{"layer_types", kinds}})) == every_other);
    std::swap(kinds[0], kinds[3]);
    std::swap(every_other[0], every_other[3]);
    CHECK(windows(changed_config(kGptOss20b, {{"layer_types", kinds}})) == every_other);
    CHECK(describe(changed_config(kGptOss20b, {{"swiglu_limit", "<remove>"},
                                               {"sliding_window", "<remove>"},
                                               {"num_experts_per_tok", "<remove>"},
                                               {"quantization_config", "<remove>"}})) ==
          describe(config));

    const auto refused = [](Status status, const char *key, const JsonValue &value,
                            const char *named) {
        expect_refused(status, {named}, kGptOss20b, {{key, value}});
    };
    refused(Status::unsupported, "attention_bias", false, "attention_bias");
    refused(Status::unsupported, "hidden_act", "relu", "hidden_act");
    refused(Status::unsupported, "/quantization_config/quant_method", "fp8", "\"fp8\"");
    refused(Status::corrupt, "swiglu_limit", 0, "swiglu_limit");
    refused(Status::corrupt, "num_local_experts", 3, "at most num_local_experts, 3");
    refused(Status::corrupt, "sliding_window", 0, "sliding_window");
    expect_refused(Status::unsupported, {"quantization_config", "mxfp4"}, kQwen3Moe,
                   {{"quantization_config", {{"quant_method", "mxfp4"}}}});
}

TEST_CASE("Config: impossible sizes of Qwen3.5 are refused by field") {
    const auto refused = [](Status status, const std::vector<std::string> &parts,
                            const std::string &field, const JsonValue &value) {
        expect_refused(status, parts, kQwen35, {{"/text_config/" + field, value}});
    };
    refused(Status::corrupt, {"text_config.linear_num_value_heads (24)", "key_heads (16)"},
            "linear_num_value_heads", 24);
    refused(Status::corrupt, {"linear_num_key_heads"}, "linear_num_key_heads", 0);
    refused(Status::corrupt, {"linear_key_head_dim", "1024"}, "linear_key_head_dim", 2048);
    refused(Status::corrupt, {"linear_value_head_dim"}, "linear_value_head_dim", -1);
    refused(Status::corrupt, {"linear_conv_kernel_dim", "from 2 to 16"}, "linear_conv_kernel_dim",
            1);
    refused(Status::corrupt, {"linear_conv_kernel_dim"}, "linear_conv_kernel_dim", 17);
    refused(Status::corrupt, {"linear_num_value_heads (65536)", "exceed"}, "linear_num_value_heads",
            65536);
    for (const double part : {0.001, 3.0 / 256, 1.5}) { // none, an odd number, more than all
        refused(Status::corrupt, {"partial_rotary_factor", "head_dim (256)"},
                "rope_parameters/partial_rotary_factor", part);
    }
    refused(Status::unsupported, {"layer_types[7]", "sliding_attention"}, "layer_types/7",
            "sliding_attention");
    refused(Status::corrupt, {"layer_types", "num_hidden_layers"}, "num_hidden_layers", 9);
    refused(Status::unsupported, {"no layer has attention"}, "layer_types",
            std::vector<std::string>(8, "linear_attention"));
    expect_refused(
        Status::unsupported, {"no layer has attention"}, kQwen35,
        {{"/text_config/layer_types", "<remove>"}, {"/text_config/full_attention_interval", 9}});
    refused(Status::unsupported, {"model_type", "qwen3_5_moe_text"}, "model_type",
            "qwen3_5_moe_text");
    refused(Status::unsupported, {"dynamic"}, "rope_parameters/rope_type", "dynamic");
    expect_refused(Status::corrupt, {"text_config"}, kQwen35, {{"text_config", nullptr}});
}

} // namespace stasis
