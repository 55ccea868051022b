// Ministral 3: Mistral with YaRN and queries that grow by position, alone or inside the multimodal
// Mistral 3, whose text model may be Mistral as well. Defaults of absent fields: transformers,
// Ministral3Config. GGUF files: llama.cpp's converter and reader (conversion/mistral3.py,
// src/models/mistral3.cpp).
#include "runtime/model/family/family.h"

namespace stasis {

namespace {

Config read_ministral3_text(const Fields &fields) {
    Config config = parse_decoder(fields, {"ministral3", 8, 128, 262144, 1e-5});
    const bool local = fields.has("sliding_window");
    const uint32_t window = local ? fields.count("sliding_window", kContextMax) : 0;
    set_layers(fields, window, std::vector<bool>(config.layers, local), config);
    parse_query_growth(fields, config);
    return config;
}

Config read_ministral3(const Fields &fields) {
    if (fields.text("model_type", "") == "ministral3") {
        return read_ministral3_text(fields);
    }
    const Fields text = fields.child("text_config");
    const std::string type = text.text("model_type", "mistral");
    refuse_unsupported(text);
    if (type == "mistral") {
        return kMistral.read(text);
    }
    if (type != "ministral3") {
        fail(Status::unsupported,
             "%smodel_type \"%s\" is not supported (ministral3 and mistral are)", text.name.c_str(),
             type.c_str());
    }
    return read_ministral3_text(text);
}

// The queries grow from the context of the original training on.
void read_ministral3_gguf(const Keys &keys, Config &config) {
    config.interleaved_rope = true;
    set_layers(keys, true, config);
    const double growth = keys.file.number(keys.name(kGgufQueryGrowth)).value_or(0.0);
    if (growth == 0.0) {
        return;
    }
    config.query_growth = static_cast<float>(keys.positive(kGgufQueryGrowth));
    config.query_growth_context = config.ropes[0].original_context;
    if (config.query_growth_context == 0) {
        unsupported(keys.file, "metadata " + keys.name(kGgufQueryGrowth) +
                                   " without rope.scaling.type \"yarn\" is not supported");
    }
}

void write_ministral3_gguf(const Config &config, const WrittenKeys &keys) {
    if (config.query_growth != 0.0F) {
        keys.number(kGgufQueryGrowth, static_cast<double>(config.query_growth));
    }
}

} // namespace

const Family kMinistral3 = {.name = "ministral3",
                            .shown = "Ministral 3",
                            .published = {{"ministral3", "Ministral3ForCausalLM"},
                                          {"mistral3", "Mistral3ForConditionalGeneration"}},
                            .read = read_ministral3,
                            .bos = 1,
                            .eos = 2,
                            .gguf = "mistral3",
                            .gguf_pairs = true,
                            .read_gguf = read_ministral3_gguf,
                            .gguf_pattern = 0,
                            .write_gguf = write_ministral3_gguf,
                            .limits = "images; devices"};

} // namespace stasis
