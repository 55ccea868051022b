// Granite 4 H: what its files say, in both formats, and by what name everything else is refused.
// What it computes is in recurrent_test.cpp and in the tests that all hybrids have.
#include "runtime/model/activation_names.h"
#include "runtime/model/gguf/config.h"
#include "runtime/quantize/quantize.h"
#include "tests/runtime/edited_model.h"
#include "tests/runtime/golden_deviation.h"
#include "tests/runtime/passes.h"
#include "tests/runtime/published_configs.h"

using namespace stasis;
using namespace stasis::test;

namespace {

constexpr char kScanning[] = "zoo/granite4-h";

} // namespace

TEST_CASE("parse_config: a published Granite 4 H") {
    const Config config = read_config(test_data(kScanning));
    CHECK(config.architecture == "granitemoehybrid");
    CHECK(config.intermediate == 128);
    CHECK(config.recurrent.scan);
    CHECK(config.recurrent.convolution_bias);
    CHECK(config.recurrent.channels() == 128 + 2 * 16);
    CHECK(config.recurrent.product_size() == 2 * 128 + 2 * 16 + 8);
    CHECK(config.recurrent.state_size() == 3 * 160 + 8 * 16 * 16);
    CHECK(config.embedding_scale == 12.0F);
    CHECK(config.attention_scale == 0.0625F);
    CHECK(config.residual_scale == 0.22F);
    CHECK(config.logits_divisor == 3.0F);
    CHECK(config.tied_head);
    CHECK(config.ropes == std::vector<Rope>{{.scaling = RopeScaling::still}});
    for (uint32_t i = 0; i < config.layers; ++i) {
        CHECK(config.layer[i].recurrent == (i != 2 && i != 5));
    }
    CHECK(described(config, "recurrent") == "selective scan, groups 1 of 16, heads 8 of 16, 4 "
                                            "taps, convolution with biases");
    CHECK(described(config, "residual_scale") == "0.22");
    CHECK(described(config, "logits_divisor") == "3");
    const Config llama = read_config(test_data("zoo/llama-gqa-untied"));
    CHECK(described(llama, "residual_scale").empty()); // older identities stay
    CHECK(described(llama, "logits_divisor").empty());
}

TEST_CASE("parse_config: variants of Granite 4 H") {
    CHECK(config_with(kScanning, "\"nope\"", "\"rope\"").ropes == std::vector<Rope>{Rope{1e4}});
    CHECK(config_with(kScanning, "\"mamba_d_head\": 16", "\"mamba_d_head\": \"auto\"")
              .recurrent.value_dim == 16);
    CHECK_FALSE(config_with(kScanning, "\"mamba_conv_bias\": true", "\"mamba_conv_bias\": false")
                    .recurrent.convolution_bias);
    const Config plain = config_with(kScanning, "\"residual_multiplier\": 0.22,", "");
    CHECK(plain.residual_scale == 1.0F);
    const auto limits = [](const std::string &given) {
        return config_with(kScanning, "\"use_cache\"",
                           "\"time_step_limit\": " + given + ", \"use_cache\"");
    };
    const Config limited = limits("[0.001, 0.5]");
    CHECK(limited.recurrent.step_least == 0.001F);
    CHECK(limited.recurrent.step_most == 0.5F);
    CHECK(described(limited, "recurrent").find("steps 0.001 to 0.5") != std::string::npos);
    const Config whole = limits("[0.0, {\"__float__\": \"Infinity\"}]");
    CHECK(describe(whole) == describe(read_config(test_data(kScanning))));
    CHECK(describe(limits("[0.0, \"Infinity\"]")) == describe(whole));
    for (const char *given : {"[0.5, 0.1]", "[-1, 1]", "[0.1]", "0.1", "[0, \"much\"]"}) {
        expect_error(Status::corrupt, {"time_step_limit"}, [&] { limits(given); });
    }
}

TEST_CASE("parse_config: what is not supported of a Granite 4 H is named") {
    config_refused(kScanning, "\"num_local_experts\": 0", "\"num_local_experts\": 8",
                   Status::unsupported, "num_local_experts");
    config_refused(kScanning, "\"num_local_experts\": 0,", "", Status::unsupported,
                   "num_local_experts");
    config_refused(kScanning, "\"mamba_proj_bias\": false", "\"mamba_proj_bias\": true",
                   Status::unsupported, "mamba_proj_bias");
    config_refused(kScanning, "\"nope\"", "\"learned\"", Status::unsupported,
                   "position_embedding_type");
    const std::string other = kActivationNames[1].config_json[0];
    config_refused(kScanning, "\"silu\"", '"' + other + '"', Status::unsupported, "hidden_act");
    config_refused(kScanning, "\"rmsnorm\"", "\"layernorm\"", Status::unsupported,
                   "normalization_function");
    config_refused(kScanning, "\"mamba\"", "\"window\"", Status::unsupported,
                   "layer_types[0]: \"window\"");
    config_refused(kScanning, "\"layer_types\"", "\"types\"", Status::unsupported,
                   "no layer has attention");
    config_refused(kScanning, "\"mamba_d_head\": 16", "\"mamba_d_head\": 8", Status::corrupt,
                   "mamba_n_heads");
    config_refused(kScanning, "\"mamba_n_groups\": 1", "\"mamba_n_groups\": 3", Status::corrupt,
                   "mamba_n_groups");
    config_refused(kScanning, "\"mamba_d_conv\": 4", "\"mamba_d_conv\": 1", Status::corrupt,
                   "mamba_d_conv");
    config_refused(kScanning, "\"logits_scaling\": 3", "\"logits_scaling\": 0", Status::corrupt,
                   "logits_scaling");
}

TEST_CASE("split_tensors: messages have the names of Granite 4's checkpoint") {
    EditedModel model(kScanning);
    const StoredTensors whole = model.tensors;
    for (const char *name :
         {"model.layers.1.mamba.conv1d.bias", "model.layers.0.mamba.in_proj.weight",
          "model.layers.2.shared_mlp.input_linear.weight",
          "model.layers.5.shared_mlp.output_linear.weight", "model.layers.3.mamba.D"}) {
        model.tensors = whole;
        model.tensors.erase(name);
        expect_refused(model, Status::corrupt, {name, "missing"});
    }
    model.tensors = whole;
    model.tensors["model.layers.1.mlp.down_proj.weight"] =
        whole.at("model.layers.1.shared_mlp.output_linear.weight");
    expect_refused(model, Status::corrupt, {"model.layers.1", "twice"});
    model.tensors = whole;
    model.tensors["model.layers.1.mamba.in_proj.bias"] = whole.at("model.norm.weight");
    expect_refused(model, Status::unsupported, {"model.layers.1.mamba.in_proj.bias"});
}

TEST_CASE("quantize_model: a Granite 4 H's GGUF file computes what its directory computes") {
    const TemporaryDirectory folder;
    const std::string path = folder.file("a.gguf");
    QuantizeOptions options;
    options.type = "BF16";
    quantize_model(test_data(kScanning), path, options);
    const GgufFile written = open_gguf(path);
    CHECK(written.text("general.architecture") == "granitehybrid");
    CHECK(written.integer("granitehybrid.ssm.conv_kernel") == 4);
    CHECK(written.integer("granitehybrid.ssm.time_step_rank") == 8);
    CHECK(written.integer("granitehybrid.ssm.inner_size") == 128);
    CHECK(written.number("granitehybrid.logit_scale") == 3.0);
    CHECK(written.number("granitehybrid.attention.scale") == 0.0625);
    CHECK(written.boolean("granitehybrid.rope.scaling.finetuned") == false);
    CHECK(written.integers("granitehybrid.attention.head_count_kv") ==
          std::vector<int64_t>{0, 0, 2, 0, 0, 2});
    // The shapes and types that other readers ask for.
    CHECK(written.tensor("blk.0.ssm_a").shape == std::vector<uint64_t>{1, 8});
    CHECK(written.tensor("blk.0.ssm_d").shape == std::vector<uint64_t>{1, 8});
    CHECK(written.tensor("blk.0.ssm_norm.weight").shape == std::vector<uint64_t>{128, 1});
    CHECK(written.tensor("blk.0.ssm_conv1d.weight").shape == std::vector<uint64_t>{4, 160});
    CHECK(written.tensor("blk.0.ssm_conv1d.weight").type == GgufType::f32);
    CHECK(written.tensor("blk.0.ssm_in.weight").shape == std::vector<uint64_t>{64, 296});
    CHECK(written.tensor("blk.0.ssm_dt.bias").shape == std::vector<uint64_t>{8});
    CHECK(written.tensor("blk.0.ffn_gate.weight").shape == std::vector<uint64_t>{64, 128});

    const auto file = open_model(path, {}), directory = open(kScanning);
    const std::vector<uint32_t> tokens = tokens_for(*directory, 100);
    CHECK(same_log(passed_log(*file, tokens, 64), passed_log(*directory, tokens, 64)));
}

TEST_CASE("quantize_model: what GGUF files cannot say of a Granite 4 H is named") {
    const auto refused = [](const std::string &from, const std::string &to,
                            const std::string &part) {
        EditedModel edited(kScanning);
        edited.set_config(from, to);
        write_bytes(edited.directory.file("model.safetensors"), safetensors_bytes(edited.tensors));
        QuantizeOptions options;
        options.type = "BF16";
        expect_error(Status::unsupported, {part}, [&] {
            quantize_model(edited.directory.path(), edited.directory.file("a.gguf"), options);
        });
    };
    refused("\"use_cache\"", "\"time_step_limit\": [0, 1], \"use_cache\"", "time_step_limit");
}

TEST_CASE("read_config: a GGUF file of a Granite 4 H with RoPE, and what is refused of one") {
    const TemporaryDirectory folder;
    const std::string path = folder.file("a.gguf"), changed = folder.file("b.gguf");
    QuantizeOptions options;
    options.type = "BF16";
    quantize_model(test_data(kScanning), path, options);
    // Replaces the value of a key, which follows the number of its type.
    const auto read_with = [&](const std::string &key, const std::string &value) {
        std::string bytes = read_bytes(path);
        const size_t at = bytes.find(key);
        REQUIRE(at != std::string::npos);
        write_bytes(changed, bytes.replace(at + key.size() + 4, value.size(), value));
        return read_config(open_gguf(changed));
    };
    const auto u32 = [](uint32_t value) {
        return std::string(reinterpret_cast<const char *>(&value), sizeof value);
    };
    const Config turning = read_with("granitehybrid.rope.scaling.finetuned", "\1");
    CHECK(turning.ropes == std::vector<Rope>{Rope{1e4}});
    CHECK(turning.interleaved_rope);
    expect_error(Status::unsupported, {"ssm.group_count"},
                 [&] { read_with("granitehybrid.ssm.group_count", u32(2)); });
    expect_error(Status::corrupt, {"ssm.inner_size"},
                 [&] { read_with("granitehybrid.ssm.time_step_rank", u32(7)); });
    expect_error(Status::unsupported, {"no layer has Mamba"}, [&] {
        read_with("granitehybrid.attention.head_count_kv",
                  u32(5) + u32(6) + std::string("\0\0\0\0", 4) + u32(2) + u32(2) + u32(2) + u32(2) +
                      u32(2) + u32(2));
    });
}
