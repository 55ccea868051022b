// Mistral: Llama with a window, in all layers or none. Its GGUF files are of the architecture
// Llama. Defaults of absent fields: transformers, MistralConfig.
#include "runtime/model/family/family.h"

namespace stasis {

namespace {

Config read_mistral(const Fields &fields) {
    Config config = parse_decoder(fields, {"mistral", 8, 0, 131072, 1e-6});
    // An absent field means the default, but null means no window, as in all models after the
    // first.
    const bool local =
        fields.has("sliding_window") || fields.object.find("sliding_window") == nullptr;
    const uint32_t window = local ? fields.count("sliding_window", kContextMax, 4096) : 0;
    set_layers(fields, window, std::vector<bool>(config.layers, local), config);
    return config;
}

} // namespace

const Family kMistral = {.name = "mistral",
                         .shown = "Mistral",
                         .published = {{"mistral", "MistralForCausalLM"}, {}},
                         .read = read_mistral,
                         .bos = 1,
                         .eos = 2,
                         .gguf = "llama",
                         .gguf_pairs = true,
                         .read_gguf = nullptr,
                         .gguf_pattern = 0,
                         .write_gguf = nullptr};

} // namespace stasis
