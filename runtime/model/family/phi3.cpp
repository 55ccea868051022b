// Phi-3, 3.5 and 4-mini: Llama with q, k and v stored as one matrix, and gate and up as another;
// those of long contexts with long RoPE. Defaults of absent fields: transformers, Phi3Config. GGUF
// files: llama.cpp's converter and reader (conversion/phi.py, src/models/phi3.cpp).
#include "runtime/model/family/family.h"

namespace stasis {

namespace {

Config read_phi3(const Fields &fields) {
    Config config = parse_decoder(fields, {"phi3", 0, 0, 4096, 1e-5});
    config.fused_tensors = true;
    const bool local = fields.has("sliding_window");
    const uint32_t window = local ? fields.count("sliding_window", kContextMax) : 0;
    config.rotary_dim = parse_rotary_dim(fields, config.head_dim, 1.0);
    set_layers(fields, parse_long_rope(fields, config), window,
               std::vector<bool>(config.layers, local), config);
    // Phi3Config.validate_rope accepts only longrope besides none.
    const RopeScaling scaling = config.ropes[0].scaling;
    if (scaling != RopeScaling::none && scaling != RopeScaling::longrope) {
        fail(Status::unsupported, "%sthis rope scaling is not one that phi3 models have",
             fields.name.c_str());
    }
    return config;
}

void read_phi3_gguf(const Keys &keys, Config &config) {
    config.fused_tensors = true;
    set_layers(keys, true, config);
    read_long_rope(keys, config);
}

} // namespace

const Family kPhi3 = {.name = "phi3",
                      .shown = "Phi-3",
                      .published = {{"phi3", "Phi3ForCausalLM"}, {}},
                      .read = read_phi3,
                      .bos = 1,
                      .eos = 32000,
                      .gguf = "phi3",
                      .gguf_pairs = false,
                      .read_gguf = read_phi3_gguf,
                      .gguf_pattern = 0,
                      .write_gguf = nullptr,
                      .part_turned = true,
                      .limits = "devices, if a part of each head is turned or the rope is long"};

} // namespace stasis
