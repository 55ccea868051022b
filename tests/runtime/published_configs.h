// config.json of published models, as far as the tests need it, and ways to change them.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/model/config.h"
#include "tests/runtime/model_files.h"

namespace stasis {

using JsonValue = nlohmann::json;

const char *const kLlama32 = R"({"architectures":["LlamaForCausalLM"],"attention_bias":false,
    "attention_dropout":0.0,"bos_token_id":128000,"eos_token_id":[128001,128008,128009],
    "head_dim":64,"hidden_act":"silu","hidden_size":2048,"initializer_range":0.02,
    "intermediate_size":8192,"max_position_embeddings":131072,"mlp_bias":false,
    "model_type":"llama","num_attention_heads":32,"num_hidden_layers":16,"num_key_value_heads":8,
    "pretraining_tp":1,"rms_norm_eps":1e-05,"rope_scaling":{"factor":32.0,"high_freq_factor":4.0,
    "low_freq_factor":1.0,"original_max_position_embeddings":8192,"rope_type":"llama3"},
    "rope_theta":500000.0,"tie_word_embeddings":true,"torch_dtype":"bfloat16","use_cache":true,
    "vocab_size":128256})";

const char *const kTinyLlama = R"({"architectures":["LlamaForCausalLM"],"bos_token_id":1,
    "eos_token_id":2,"hidden_act":"silu","hidden_size":2048,"intermediate_size":5632,
    "max_position_embeddings":2048,"model_type":"llama","num_attention_heads":32,
    "num_hidden_layers":22,"num_key_value_heads":4,"rms_norm_eps":1e-05,"rope_scaling":null,
    "tie_word_embeddings":false,"torch_dtype":"float32","vocab_size":32000})";

const char *const kLinearLlama = R"({"architectures":["LlamaForCausalLM"],"bos_token_id":1,
    "eos_token_id":2,"hidden_act":"silu","hidden_size":4096,"intermediate_size":11008,
    "max_position_embeddings":16384,"model_type":"llama","num_attention_heads":32,
    "num_hidden_layers":32,"rms_norm_eps":1e-05,"rope_scaling":{"factor":4.0,"type":"linear"},
    "vocab_size":32000})";

const char *const kGemma1b = R"({"architectures":["Gemma3ForCausalLM"],"attention_bias":false,
    "attn_logit_softcapping":null,"bos_token_id":2,"cache_implementation":"hybrid",
    "eos_token_id":[1,106],"final_logit_softcapping":null,"head_dim":256,
    "hidden_activation":"gelu_pytorch_tanh","hidden_size":1152,"intermediate_size":6912,
    "max_position_embeddings":32768,"model_type":"gemma3_text","num_attention_heads":4,
    "num_hidden_layers":26,"num_key_value_heads":1,"pad_token_id":0,"query_pre_attn_scalar":256,
    "rms_norm_eps":1e-06,"rope_local_base_freq":10000,"rope_scaling":null,"rope_theta":1000000,
    "sliding_window":512,"sliding_window_pattern":6,"vocab_size":262144})";

const char *const kGemma4b = R"({"architectures":["Gemma3ForConditionalGeneration"],
    "boi_token_index":255999,"eoi_token_index":256000,"eos_token_id":[1,106],
    "image_token_index":262144,"mm_tokens_per_image":256,"model_type":"gemma3","text_config":{
    "hidden_size":2560,"intermediate_size":10240,"model_type":"gemma3_text",
    "num_hidden_layers":34,"rope_scaling":{"factor":8.0,"rope_type":"linear"},
    "sliding_window":1024},"torch_dtype":"bfloat16","vision_config":{"hidden_size":1152,
    "intermediate_size":4304,"model_type":"siglip_vision_model","num_attention_heads":16}})";

const char *const kQwen25 = R"({"architectures":["Qwen2ForCausalLM"],"attention_dropout":0.0,
    "bos_token_id":151643,"eos_token_id":151645,"hidden_act":"silu","hidden_size":896,
    "intermediate_size":4864,"max_position_embeddings":32768,"max_window_layers":21,
    "model_type":"qwen2","num_attention_heads":14,"num_hidden_layers":24,"num_key_value_heads":2,
    "rms_norm_eps":1e-06,"rope_theta":1000000.0,"sliding_window":32768,"tie_word_embeddings":true,
    "torch_dtype":"bfloat16","use_sliding_window":false,"vocab_size":151936})";

const char *const kQwen3 = R"({"architectures":["Qwen3ForCausalLM"],"attention_bias":false,
    "bos_token_id":151643,"eos_token_id":151645,"head_dim":128,"hidden_act":"silu",
    "hidden_size":1024,"intermediate_size":3072,"max_position_embeddings":40960,
    "max_window_layers":28,"model_type":"qwen3","num_attention_heads":16,"num_hidden_layers":28,
    "num_key_value_heads":8,"rms_norm_eps":1e-06,"rope_scaling":null,"rope_theta":1000000,
    "sliding_window":null,"tie_word_embeddings":true,"torch_dtype":"bfloat16",
    "use_sliding_window":false,"vocab_size":151936})";

const char *const kQwen3Moe = R"({"architectures":["Qwen3MoeForCausalLM"],"attention_bias":false,
    "attention_dropout":0.0,"bos_token_id":151643,"decoder_sparse_step":1,"eos_token_id":151645,
    "head_dim":128,"hidden_act":"silu","hidden_size":2048,"initializer_range":0.02,
    "intermediate_size":6144,"max_position_embeddings":40960,"max_window_layers":48,
    "mlp_only_layers":[],"model_type":"qwen3_moe","moe_intermediate_size":768,
    "norm_topk_prob":true,"num_attention_heads":32,"num_experts":128,"num_experts_per_tok":8,
    "num_hidden_layers":48,"num_key_value_heads":4,"output_router_logits":false,
    "rms_norm_eps":1e-06,"rope_scaling":null,"rope_theta":1000000.0,"router_aux_loss_coef":0.001,
    "sliding_window":null,"tie_word_embeddings":false,"torch_dtype":"bfloat16","use_cache":true,
    "use_sliding_window":false,"vocab_size":151936})";

const char *const kQwen35 = R"({"architectures":["Qwen3_5ForConditionalGeneration"],
    "image_token_id":248056,"model_type":"qwen3_5","text_config":{"attention_bias":false,
    "attention_dropout":0.0,"attn_output_gate":true,"dtype":"bfloat16","eos_token_id":248044,
    "full_attention_interval":4,"head_dim":256,"hidden_act":"silu","hidden_size":2048,
    "initializer_range":0.02,"intermediate_size":6144,"layer_types":["linear_attention",
    "linear_attention","linear_attention","full_attention","linear_attention","linear_attention",
    "linear_attention","full_attention"],"linear_conv_kernel_dim":4,"linear_key_head_dim":128,
    "linear_num_key_heads":16,"linear_num_value_heads":32,"linear_value_head_dim":128,
    "mamba_ssm_dtype":"float32","max_position_embeddings":262144,"mlp_only_layers":[],
    "model_type":"qwen3_5_text","mtp_num_hidden_layers":1,"mtp_use_dedicated_embeddings":false,
    "num_attention_heads":8,"num_hidden_layers":8,"num_key_value_heads":2,"rms_norm_eps":1e-06,
    "rope_parameters":{"mrope_interleaved":true,"mrope_section":[11,11,10],
    "partial_rotary_factor":0.25,"rope_theta":10000000,"rope_type":"default"},
    "tie_word_embeddings":true,"use_cache":true,"vocab_size":248320},"tie_word_embeddings":true,
    "video_token_id":248057,"vision_config":{"depth":24,"hidden_size":1024,"model_type":"qwen3_5",
    "num_heads":16},"vision_end_token_id":248054,"vision_start_token_id":248053})";

const char *const kMistral = R"({"architectures":["MistralForCausalLM"],"bos_token_id":1,
    "eos_token_id":2,"hidden_act":"silu","hidden_size":4096,"intermediate_size":14336,
    "max_position_embeddings":32768,"model_type":"mistral","num_attention_heads":32,
    "num_hidden_layers":32,"num_key_value_heads":8,"rms_norm_eps":1e-05,"rope_theta":10000.0,
    "sliding_window":4096,"tie_word_embeddings":false,"torch_dtype":"bfloat16",
    "vocab_size":32000})";

const char *const kPhi3 = R"({"architectures":["Phi3ForCausalLM"],"attention_bias":false,
    "bos_token_id":1,"embd_pdrop":0.0,"eos_token_id":32000,"hidden_act":"silu","hidden_size":3072,
    "intermediate_size":8192,"max_position_embeddings":4096,"model_type":"phi3",
    "num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":32,
    "original_max_position_embeddings":4096,"rms_norm_eps":1e-05,"rope_scaling":null,
    "rope_theta":10000.0,"sliding_window":2047,"tie_word_embeddings":false,
    "torch_dtype":"bfloat16","vocab_size":32064})";

// Without its layer_types, which are those of a file that has none.
const char *const kGptOss20b = R"({"architectures":["GptOssForCausalLM"],"attention_bias":true,
    "attention_dropout":0.0,"eos_token_id":200002,"experts_per_token":4,"head_dim":64,
    "hidden_act":"silu","hidden_size":2880,"initial_context_length":4096,
    "initializer_range":0.02,"intermediate_size":2880,"max_position_embeddings":131072,
    "model_type":"gpt_oss","num_attention_heads":64,"num_experts_per_tok":4,
    "num_hidden_layers":24,"num_key_value_heads":8,"num_local_experts":32,
    "output_router_logits":false,"pad_token_id":199999,"quantization_config":
    {"modules_to_not_convert":["model.layers.*.self_attn","model.layers.*.mlp.router",
    "model.embed_tokens","lm_head"],"quant_method":"mxfp4"},"rms_norm_eps":1e-05,
    "rope_scaling":{"beta_fast":32.0,"beta_slow":1.0,"factor":32.0,
    "original_max_position_embeddings":4096,"rope_type":"yarn","truncate":false},
    "rope_theta":150000,"router_aux_loss_coef":0.9,"sliding_window":128,"swiglu_limit":7.0,
    "tie_word_embeddings":false,"use_cache":true,"vocab_size":201088})";

// `text` with some fields changed; a value of "<remove>" removes one. "/a/b" names a field of a.
using Changes = std::map<std::string, JsonValue>;
inline std::string changed(const char *text, const Changes &changes) {
    JsonValue object = JsonValue::parse(text);
    for (const auto &[name, value] : changes) {
        const JsonValue::json_pointer pointer(name[0] == '/' ? name : "/" + name);
        if (value == "<remove>") {
            object.at(pointer.parent_pointer()).erase(pointer.back());
        } else {
            object[pointer] = value;
        }
    }
    return object.dump();
}

inline Config config_of(const std::string &text) {
    return parse_config(text, "");
}

inline Config changed_config(const char *text, const Changes &changes = {}) {
    return config_of(changed(text, changes));
}

// What the identity says under a name; "": nothing.
inline std::string described(const Config &config, const std::string &name) {
    for (const auto &[key, value] : describe(config)) {
        if (key == name) {
            return value;
        }
    }
    return "";
}

inline void expect_refused(Status status, const std::vector<std::string> &parts, const char *text,
                           const Changes &changes) {
    const std::string config = changed(text, changes);
    CAPTURE(config);
    expect_error(status, parts, [&] { config_of(config); });
}

} // namespace stasis
