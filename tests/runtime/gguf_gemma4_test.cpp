// Gemma 4 as a GGUF file in the layout of llama.cpp's converter (conversion/gemma.py), written here
// independently of the product: it computes what the directory computes, and what contradicts
// itself in its metadata is refused by name.
#include <functional>

#include "runtime/model/gguf/config.h"
#include "tests/runtime/gguf_model.h"
#include "tests/runtime/passes.h"

using namespace stasis;
using namespace stasis::test;

namespace {

constexpr char kPrefix[] = "model.language_model.";

// The names of the converter, before ".weight" where the checkpoint's name has it.
std::string converted(const std::string &name) {
    static const std::vector<std::pair<std::string, std::string>> names = {
        {"self_attn.q_proj.", "attn_q."},
        {"self_attn.k_proj.", "attn_k."},
        {"self_attn.v_proj.", "attn_v."},
        {"self_attn.o_proj.", "attn_output."},
        {"self_attn.q_norm.", "attn_q_norm."},
        {"self_attn.k_norm.", "attn_k_norm."},
        {"mlp.gate_proj.", "ffn_gate."},
        {"mlp.up_proj.", "ffn_up."},
        {"mlp.down_proj.", "ffn_down."},
        {"input_layernorm.", "attn_norm."},
        {"post_attention_layernorm.", "post_attention_norm."},
        {"pre_feedforward_layernorm.", "ffn_norm."},
        {"post_feedforward_layernorm.", "post_ffw_norm."},
        {"post_feedforward_layernorm_1.", "post_ffw_norm_1."},
        {"pre_feedforward_layernorm_2.", "pre_ffw_norm_2."},
        {"post_feedforward_layernorm_2.", "post_ffw_norm_2."},
        {"per_layer_input_gate.", "inp_gate."},
        {"per_layer_projection.", "proj."},
        {"post_per_layer_input_norm.", "post_norm."},
        {"layer_scalar", "layer_output_scale.weight"},
        {"router.proj.", "ffn_gate_inp."},
        {"router.scale", "ffn_gate_inp.scale"},
        {"router.per_expert_scale", "ffn_down_exps.scale"},
        {"experts.gate_up_proj", "ffn_gate_up_exps.weight"},
        {"experts.down_proj", "ffn_down_exps.weight"},
        {"embed_tokens.", "token_embd."},
        {"norm.", "output_norm."},
        {"embed_tokens_per_layer.", "per_layer_token_embd."},
        {"per_layer_model_projection.", "per_layer_model_proj."},
        {"per_layer_projection_norm.", "per_layer_proj_norm."},
    };
    std::string block, rest = name.substr(sizeof kPrefix - 1);
    if (rest.starts_with("layers.")) {
        const size_t dot = rest.find('.', 7);
        block = "blk." + rest.substr(7, dot - 6);
        rest = rest.substr(dot + 1);
    }
    for (const auto &[stored, gguf] : names) {
        if (rest.starts_with(stored)) {
            return block + gguf + rest.substr(stored.size());
        }
    }
    FAIL("no name for ", name);
    return "";
}

struct GgufGemma4 {
    explicit GgufGemma4(const char *model)
        : config(read_config(test_data(model))), tensors(read_tensors_of(test_data(model))) {
        for (const LayerConfig &kind : config.layer) {
            local.push_back(kind.window != 0 ? 1 : 0);
            heads.push_back(static_cast<int32_t>(config.kv_heads_of(kind)));
            sizes.push_back(static_cast<int32_t>(config.intermediate_of(kind)));
        }
        factors.assign(config.global_head_dim / 2, 1e30F);
        std::fill_n(factors.begin(), 6, 1.0F); // a quarter of 48, in pairs
    }

    Config config;
    StoredTensors tensors;
    std::vector<uint8_t> local;
    std::vector<int32_t> heads, sizes;
    std::vector<float> factors; // none: no tensor
    std::string scaling;

    std::string bytes() const {
        GgufWriter writer;
        describe(writer);
        for (const auto &[name, tensor] : tensors) {
            const bool vector = tensor.shape.size() == 1;
            std::string values = tensor.bytes;
            if (vector) {
                values.clear();
                for (const float value : values_of(tensor)) {
                    values += gguf_number(value);
                }
            }
            writer.tensor(converted(name), vector ? GgufType::f32 : GgufType::bf16,
                          {tensor.shape.rbegin(), tensor.shape.rend()}, values);
        }
        std::string values;
        for (const float factor : factors) {
            values += gguf_number(factor);
        }
        if (!factors.empty()) {
            writer.tensor("rope_freqs.weight", GgufType::f32, {factors.size()}, values);
        }
        return writer.bytes();
    }

    void describe(GgufWriter &writer) const {
        const auto key = [](const char *name) { return std::string("gemma4.") + name; };
        writer.text("general.architecture", "gemma4");
        writer.integer(key("block_count"), config.layers);
        writer.integer(key("context_length"), config.context);
        writer.integer(key("embedding_length"), config.hidden);
        writer.integer(key("embedding_length_per_layer_input"), config.layer_inputs);
        writer.integer(key("attention.head_count"), config.heads);
        writer.array<int32_t>(key("attention.head_count_kv"), GgufValueType::i32, heads);
        writer.array<int32_t>(key("feed_forward_length"), GgufValueType::i32, sizes);
        writer.array<uint8_t>(key("attention.sliding_window_pattern"), GgufValueType::boolean,
                              local);
        writer.integer(key("attention.sliding_window"), 24);
        uint32_t shared = 0;
        for (const LayerConfig &kind : config.layer) {
            shared += kind.own_keys() ? 0 : 1;
        }
        writer.integer(key("attention.shared_kv_layers"), shared);
        for (const char *length :
             {"attention.key_length", "attention.value_length", "rope.dimension_count"}) {
            writer.integer(key(length), config.global_head_dim);
            writer.integer(key(length) + "_swa", config.head_dim);
        }
        writer.number(key("attention.layer_norm_rms_epsilon"), config.norm_eps);
        writer.number(key("rope.freq_base"), 1e6F);
        writer.number(key("rope.freq_base_swa"), 1e4F);
        writer.number(key("final_logit_softcapping"), config.final_softcap);
        if (!scaling.empty()) {
            writer.text(key("rope.scaling.type"), scaling);
            writer.number(key("rope.scaling.factor"), 2.0F);
        }
        if (config.experts.count != 0) {
            writer.integer(key("expert_count"), config.experts.count);
            writer.integer(key("expert_used_count"), config.experts.chosen);
            writer.integer(key("expert_feed_forward_length"), config.experts.intermediate);
        }
        writer.integer("tokenizer.ggml.bos_token_id", 2);
        writer.integer("tokenizer.ggml.eos_token_id", 1);
        writer.integer("tokenizer.ggml.eot_token_id", 106);
    }

    std::shared_ptr<Model> opened() const {
        const TemporaryDirectory folder;
        write_bytes(folder.file("m.gguf"), bytes());
        return open_model(folder.file("m.gguf"), {});
    }
};

void gguf_refused(Status status, const std::vector<std::string> &parts, const char *model,
                  const std::function<void(GgufGemma4 &)> &change) {
    GgufGemma4 file(model);
    change(file);
    expect_error(status, parts, [&] { file.opened(); });
}

} // namespace

TEST_CASE("open_model: a converted Gemma 4 computes what its directory computes") {
    for (const char *name : {"zoo/gemma4-e", "zoo/gemma4-moe"}) {
        CAPTURE(name);
        const auto file = GgufGemma4(name).opened(), directory = open(name);
        CHECK(describe(file->config) == describe(directory->config));
        CHECK(file->config.bos == directory->config.bos);
        CHECK(file->weights.ignored == directory->weights.ignored);
        const std::vector<uint32_t> tokens = tokens_for(*directory, 100);
        CHECK(same_log(passed_log(*file, tokens, 64), passed_log(*directory, tokens, 64)));
    }
}

TEST_CASE("open_model: a Gemma 4 of which whole heads turn has factors of 1") {
    GgufGemma4 file("zoo/gemma4-e");
    std::fill(file.factors.begin(), file.factors.end(), 1.0F);
    CHECK(file.opened()->config.ropes[1].still_from == 0);
}

TEST_CASE("open_model: what contradicts itself in a Gemma 4's metadata is named") {
    const char *const small = "zoo/gemma4-e", *const mixture = "zoo/gemma4-moe";
    gguf_refused(Status::corrupt, {"rope_freqs.weight", "missing"}, small,
                 [](GgufGemma4 &f) { f.factors.clear(); });
    gguf_refused(Status::unsupported, {"rope_freqs.weight", "first factor"}, small,
                 [](GgufGemma4 &f) { f.factors[0] = 2; });
    gguf_refused(Status::unsupported, {"rope_freqs.weight", "1e30"}, small,
                 [](GgufGemma4 &f) { f.factors[7] = 8; });
    gguf_refused(Status::corrupt, {"rope_freqs.weight", "F32 [24]"}, small,
                 [](GgufGemma4 &f) { f.factors.resize(16); });
    gguf_refused(Status::unsupported, {"head_count_kv", "one kind"}, mixture,
                 [](GgufGemma4 &f) { f.heads[2] = 4; });
    gguf_refused(Status::corrupt, {"head_count_kv", "4 layers"}, mixture,
                 [](GgufGemma4 &f) { f.heads.pop_back(); });
    gguf_refused(Status::corrupt, {"feed_forward_length"}, small,
                 [](GgufGemma4 &f) { f.sizes[3] = 0; });
    gguf_refused(Status::corrupt, {"shared_kv_layers", "each kind"}, small, [](GgufGemma4 &f) {
        f.local.assign(8, 1);
        f.local[7] = 0;
    });
    gguf_refused(Status::unsupported, {"rope.scaling.type"}, small,
                 [](GgufGemma4 &f) { f.scaling = "linear"; });
}
