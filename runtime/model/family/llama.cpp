// Llama, and models published under its name (SmolLM2, TinyLlama). Defaults of absent fields:
// transformers, LlamaConfig.
#include "runtime/model/family/family.h"

namespace stasis {

namespace {

Config read_llama(const Fields &fields) {
    Config config = parse_decoder(fields, {"llama", 0, 0, 2048, 1e-6});
    config.attention_bias = config.output_bias = fields.flag("attention_bias", false);
    config.mlp_bias = fields.flag("mlp_bias", false);
    set_layers(fields, 0, std::vector<bool>(config.layers, false), config);
    return config;
}

// GGUF files interleave RoPE pairs. All layers may have a window, as in files of Mistral.
void read_llama_gguf(const Keys &keys, Config &config) {
    config.interleaved_rope = true;
    set_layers(keys, true, config);
}

} // namespace

const Family kLlama = {.name = "llama",
                       .shown = "Llama",
                       .published = {{"llama", "LlamaForCausalLM"}, {}},
                       .read = read_llama,
                       .bos = 1,
                       .eos = 2,
                       .gguf = "llama",
                       .gguf_pairs = true,
                       .read_gguf = read_llama_gguf,
                       .gguf_pattern = 0,
                       .write_gguf = nullptr};

} // namespace stasis
