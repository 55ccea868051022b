// LFM2: what its files say, in both formats, and by what name everything else is refused. What it
// computes is in recurrent_test.cpp and in the tests that all hybrids have.
#include "runtime/model/gguf/config.h"
#include "runtime/quantize/quantize.h"
#include "tests/runtime/edited_model.h"
#include "tests/runtime/golden_deviation.h"
#include "tests/runtime/passes.h"

using namespace stasis;
using namespace stasis::test;

namespace {

constexpr char kConvolving[] = "zoo/lfm2";
constexpr char kAttention[] = "\"full_attn_idxs\": [\n  2,\n  4\n ]";

} // namespace

TEST_CASE("parse_config: a published LFM2") {
    const Config config = read_config(test_data(kConvolving));
    CHECK(config.architecture == "lfm2");
    CHECK(config.intermediate == 160); // two thirds of 200, in multiples of 32
    CHECK(config.recurrent.short_convolutions());
    CHECK(config.recurrent.taps == 3);
    CHECK(config.recurrent.channels() == 64);
    CHECK(config.recurrent.state_size() == 2 * 64);
    CHECK(config.tied_head);
    CHECK(config.norm_eps == 1e-5F);
    CHECK(config.ropes == std::vector<Rope>{Rope{1e6}});
    for (uint32_t i = 0; i < config.layers; ++i) {
        CHECK(config.layer[i].recurrent == (i != 2 && i != 4));
    }
    const Config listed =
        config_with(kConvolving, kAttention, R"("layer_types": ["conv", "conv", "full_attention",
        "conv", "full_attention", "conv"])");
    CHECK(describe(listed) == describe(config));
    CHECK(config_with(kConvolving, "\"block_auto_adjust_ff_dim\": true",
                      "\"block_auto_adjust_ff_dim\": false")
              .intermediate == 200);
    CHECK(config_with(kConvolving, "\"block_ffn_dim_multiplier\": 1.0",
                      "\"block_ffn_dim_multiplier\": 1.3")
              .intermediate == 192); // 172.9, in multiples of 32
    CHECK(!config_with(kConvolving, "\"use_cache\"", "\"tie_embedding\": false, \"use_cache\"")
               .tied_head);
}

TEST_CASE("parse_config: what is not supported of an LFM2 is named") {
    config_refused(kConvolving, "\"conv_bias\": false", "\"conv_bias\": true", Status::unsupported,
                   "conv_bias");
    config_refused(kConvolving, kAttention, "\"full_attn_idxs\": []", Status::unsupported,
                   "no layer has attention");
    config_refused(kConvolving, kAttention, "\"full_attn_idxs\": null", Status::unsupported,
                   "no layer has a convolution");
    config_refused(kConvolving, kAttention, "\"full_attn_idxs\": [6]", Status::corrupt,
                   "full_attn_idxs");
    config_refused(kConvolving, kAttention, R"("layer_types": ["conv"])", Status::corrupt,
                   "layer_types");
    config_refused(kConvolving, kAttention,
                   R"("layer_types": ["conv", "conv", "full_attention", "conv", "window",
        "conv"])",
                   Status::unsupported, "layer_types[4]: \"window\"");
    config_refused(kConvolving, "\"conv_L_cache\": 3", "\"conv_L_cache\": 1", Status::corrupt,
                   "conv_L_cache");
    config_refused(kConvolving, "\"block_ffn_dim_multiplier\": 1.0",
                   "\"block_ffn_dim_multiplier\": 1e9", Status::corrupt,
                   "block_ffn_dim_multiplier");
}

TEST_CASE("rename_tensors: messages have the names of the checkpoint") {
    EditedModel model(kConvolving);
    const StoredTensors whole = model.tensors;
    for (const char *name :
         {"model.layers.1.operator_norm.weight", "model.embedding_norm.weight",
          "model.layers.2.self_attn.q_layernorm.weight", "model.layers.5.feed_forward.w3.weight",
          "model.layers.0.conv.conv.weight"}) {
        model.tensors = whole;
        model.tensors.erase(name);
        expect_refused(model, Status::corrupt, {name, "missing"});
    }
    model.tensors = whole;
    model.tensors["model.layers.1.input_layernorm.weight"] =
        whole.at("model.layers.1.operator_norm.weight");
    expect_refused(model, Status::corrupt, {"model.layers.1", "twice"});
    model.tensors = whole;
    model.tensors["model.layers.1.conv.conv.bias"] = whole.at("model.embedding_norm.weight");
    expect_refused(model, Status::unsupported, {"model.layers.1.conv.conv.bias"});
}

TEST_CASE("quantize_model: an LFM2's GGUF file computes what its directory computes") {
    const TemporaryDirectory folder;
    const std::string path = folder.file("a.gguf");
    QuantizeOptions options;
    options.type = "BF16";
    quantize_model(test_data(kConvolving), path, options);
    const GgufFile written = open_gguf(path);
    CHECK(written.text("general.architecture") == "lfm2");
    CHECK(written.integer("lfm2.shortconv.l_cache") == 3);
    CHECK(written.integer("lfm2.feed_forward_length") == 160);
    CHECK(written.integers("lfm2.attention.head_count_kv") ==
          std::vector<int64_t>{0, 0, 2, 0, 2, 0});
    CHECK(written.tensor("token_embd_norm.weight").type == GgufType::f32);
    CHECK(written.tensor("blk.0.shortconv.conv.weight").shape == std::vector<uint64_t>{3, 64});
    CHECK(written.tensor("blk.0.shortconv.in_proj.weight").shape == std::vector<uint64_t>{64, 192});

    const auto file = open_model(path, {}), directory = open(kConvolving);
    const std::vector<uint32_t> tokens = tokens_for(*directory, 100);
    CHECK(same_log(passed_log(*file, tokens, 64), passed_log(*directory, tokens, 64)));
}
