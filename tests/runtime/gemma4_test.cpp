// Gemma 4: what its files say, in both formats, and by what name everything else is refused. What
// it computes is in golden_gemma4_test.cpp and in the tests that all bundled models have.
#include "runtime/model/gguf/config.h"
#include "runtime/quantize/quantize.h"
#include "tests/runtime/edited_model.h"
#include "tests/runtime/passes.h"
#include "tests/runtime/published_configs.h"

using namespace stasis;
using namespace stasis::test;

namespace {

constexpr char kWithInputs[] = "zoo/gemma4-e", kBesideMlp[] = "zoo/gemma4-moe";

} // namespace

TEST_CASE("parse_config: a published small Gemma 4") {
    const Config config = read_config(test_data(kWithInputs));
    CHECK(config.architecture == "gemma4");
    CHECK(config.attention_scale == 1.0F);
    CHECK(config.embedding_scale == 8.0F);
    CHECK(!config.norm_plus_one);
    CHECK(config.value_norm);
    CHECK(config.layer_inputs == 16);
    CHECK(config.final_softcap == 8.0F);
    CHECK(config.experts.count == 0);
    for (uint32_t i = 0; i < config.layers; ++i) {
        CAPTURE(i);
        const LayerConfig &kind = config.layer[i];
        const bool global = i % 4 == 3;
        CHECK(kind.window == (global ? 0 : 24));
        CHECK(config.head_dim_of(kind) == (global ? 48 : 32));
        CHECK(config.kv_heads_of(kind) == 1);
        CHECK(kind.keys_of == (i < 4 ? kOwnKeys : global ? 3 : 2));
        CHECK(config.intermediate_of(kind) == (i < 4 ? 96 : 192));
    }
    const Rope &global = config.ropes[config.layer[3].rope];
    CHECK(global.base == 1e6);
    CHECK(global.rotary == 48);
    CHECK(global.still_from == 6);
    CHECK(described(config, "layer_keys") == "0 1 2 3 2 2 2 3");
    CHECK(described(config, "layer_intermediate") == "96 96 96 96 192 192 192 192");
    CHECK(described(config, "rope_1") == "base 1e+06, of 48, still from pair 6");
}

TEST_CASE("parse_config: a published mixture of Gemma 4") {
    const Config config = read_config(test_data(kBesideMlp));
    CHECK(config.layer_inputs == 0);
    CHECK(config.global_keys_as_values);
    CHECK(config.kv_heads == 2);
    CHECK(config.global_kv_heads == 1);
    CHECK(config.experts.count == 8);
    CHECK(config.experts.chosen == 2);
    CHECK(config.experts.intermediate == 32);
    CHECK(config.experts.beside_mlp);
    CHECK(config.layer[0].experts);
    CHECK(described(config, "experts") ==
          "8, 2 chosen, intermediate 32, renormalised, beside an MLP");
    // The global number of heads counts only where keys are the values.
    CHECK(config_with(kBesideMlp, "\"attention_k_eq_v\": true", "\"attention_k_eq_v\": false")
              .global_kv_heads == 0);
    // Other models' descriptions have none of these fields.
    const Config gemma3 = read_config(test_data("zoo/gemma3-text"));
    for (const char *name : {"value_norm", "global_head_dim", "layer_keys", "layer_inputs"}) {
        CHECK(described(gemma3, name).empty());
    }
}

TEST_CASE("parse_config: what is not supported of a Gemma 4 is named") {
    const char *const small = kWithInputs;
    config_refused(small, "\"num_kv_shared_layers\": 4", "\"num_kv_shared_layers\": 8",
                   Status::corrupt, "num_kv_shared_layers");
    config_refused(small, "\"num_kv_shared_layers\": 4", "\"num_kv_shared_layers\": 6",
                   Status::corrupt, "each kind of layer has keys of its own");
    config_refused(small, "\"vocab_size_per_layer_input\": 192",
                   "\"vocab_size_per_layer_input\": 190", Status::unsupported,
                   "vocab_size_per_layer_input");
    config_refused(small, "\"rope_type\": \"proportional\"", "\"rope_type\": \"yarn\"",
                   Status::unsupported, "yarn");
    config_refused(small, "\"partial_rotary_factor\": 0.25", "\"partial_rotary_factor\": 0.01",
                   Status::corrupt, "partial_rotary_factor");
    config_refused(small, "\"partial_rotary_factor\": 0.25", "\"partial_rotary_factor\": 1.5",
                   Status::corrupt, "partial_rotary_factor");
    config_refused(small, "\"global_head_dim\": 48", "\"global_head_dim\": 47", Status::corrupt,
                   "global_head_dim (47) is odd");
    config_refused(small, "\"global_head_dim\": 48", "\"global_head_dim\": 2048",
                   Status::unsupported, "global_head_dim (2048) exceeds");
    config_refused(kBesideMlp, "\"num_global_key_value_heads\": 1",
                   "\"num_global_key_value_heads\": 3", Status::corrupt,
                   "num_global_key_value_heads (3)");
    config_refused(kBesideMlp, "\"use_bidirectional_attention\": \"vision\"",
                   "\"use_bidirectional_attention\": \"all\"", Status::unsupported,
                   "use_bidirectional_attention");
    config_refused(kBesideMlp, "\"top_k_experts\": 2", "\"top_k_experts\": 9", Status::corrupt,
                   "top_k_experts");
}

TEST_CASE("load_weights: tensors of keys that a layer does not use are told and not read") {
    EditedModel model(kWithInputs);
    const std::string name = "model.language_model.layers.5.self_attn.k_proj.weight";
    set_value<uint16_t>(model.tensors.at(name), 3, 0x7F80); // infinite
    const Loaded loaded = model.load();
    CHECK(loaded.weights.ignored == "keys and values of layers that use another's: 12");
    CHECK(loaded.weights.layers[5].key.data == nullptr);
    model.tensors.erase(name);
    CHECK(model.load().weights.ignored == "keys and values of layers that use another's: 11");
    const std::string own = "model.language_model.layers.2.self_attn.k_proj.weight";
    model.tensors.erase(own);
    expect_refused(model, Status::corrupt, {"layers.2.self_attn.k_proj.weight", "missing"});
}

TEST_CASE("load_weights: numbers that layers get of tokens are checked, and stay in the file") {
    EditedModel model(kWithInputs);
    const std::string name = "model.language_model.embed_tokens_per_layer.weight";
    const Loaded loaded = model.load();
    CHECK(loaded.weights.inputs.tokens.row_bytes == 2 * 8 * 16);
    CHECK(loaded.weights.inputs.table.data == nullptr);
    set_value<uint16_t>(model.tensors.at(name), 1000, 0x7FC0);
    expect_refused(model, Status::nonfinite, {"embed_tokens_per_layer.weight", "index 1000"});
}

TEST_CASE("rename_tensors: a Gemma 4's messages have the names of the checkpoint") {
    for (const char *name :
         {"router.scale", "router.per_expert_scale", "router.proj.weight", "layer_scalar"}) {
        EditedModel model(kBesideMlp);
        const std::string whole = std::string("model.language_model.layers.1.") + name;
        model.tensors.erase(whole);
        expect_refused(model, Status::corrupt, {whole.c_str(), "missing"});
    }
}

TEST_CASE("quantize_model: a Gemma 4's GGUF file computes what its directory computes") {
    for (const char *name : {kWithInputs, kBesideMlp}) {
        CAPTURE(name);
        const TemporaryDirectory folder;
        const std::string path = folder.file("a.gguf");
        QuantizeOptions options;
        options.type = "BF16";
        quantize_model(test_data(name), path, options);
        const GgufFile written = open_gguf(path);
        CHECK(written.text("general.architecture") == "gemma4");
        CHECK(written.integer("gemma4.attention.key_length") == 48);
        CHECK(written.integer("gemma4.attention.key_length_swa") == 32);
        CHECK(written.booleans("gemma4.attention.sliding_window_pattern")->size() ==
              open(name)->config.layers); // one by one, even where there is a period
        CHECK(written.tensor("rope_freqs.weight").shape == std::vector<uint64_t>{24});
        CHECK(written.tensor("blk.1.layer_output_scale.weight").type == GgufType::f32);
        const auto file = open_model(path, {}), directory = open(name);
        CHECK(describe(file->config) == describe(directory->config));
        const std::vector<uint32_t> tokens = tokens_for(*directory, 100);
        CHECK(same_log(passed_log(*file, tokens, 64), passed_log(*directory, tokens, 64)));
    }
}

TEST_CASE("open_model: the types in which a file has a Gemma 4's numbers of tokens") {
    for (const char *type : {"F16", "Q8_0", "Q4_0"}) {
        CAPTURE(type);
        const TemporaryDirectory folder;
        QuantizeOptions options;
        options.type = type;
        quantize_model(test_data(kWithInputs), folder.file("a.gguf"), options);
        std::vector<PassedLog> logs;
        for (const bool map : {true, false}) {
            ModelOptions opened;
            opened.copy_weights = !map;
            const auto file = open_model(folder.file("a.gguf"), opened);
            logs.push_back(passed_log(*file, tokens_for(*file, 100), 64));
        }
        CHECK(same_log(logs[0], logs[1]));
    }
}
