// LFM2: short convolutions and attention, in any order. Defaults of absent fields: transformers,
// Lfm2Config, and Lfm2MLP for the width of the MLP. The metadata of GGUF files: llama.cpp's
// converter (lfm2; conversion/lfm2.py), by which a layer without attention has no key and value
// heads.
#include "runtime/model/family/family.h"

#include <algorithm>

namespace stasis {

namespace {

constexpr uint32_t kLfmTapsMost = 16;
constexpr char kHeadCounts[] = "attention.head_count_kv"; // in GGUF files, as the next
constexpr char kTaps[] = "shortconv.l_cache";

// Sets the layers, of which those in `convolutions` are not attention.
void set_lfm_kinds(const std::string &file, const std::vector<bool> &convolutions, const Rope &rope,
                   Config &config) {
    set_hybrid_layers(file, convolutions, "a convolution", rope, config);
    config.recurrent.value_heads = 1;
    config.recurrent.value_dim = config.hidden;
    config.query_key_norm = true;
}

// The layers that full_attn_idxs lists have attention, all if there is no such list.
std::vector<bool> read_indexes(const Fields &fields, uint32_t layers) {
    constexpr char kAttention[] = "full_attn_idxs";
    std::vector<bool> convolutions(layers, fields.has(kAttention));
    if (!fields.has(kAttention)) {
        return convolutions;
    }
    const Json::Array *indexes = fields.object.find(kAttention)->array();
    if (indexes == nullptr) {
        fields.refuse(kAttention, "an array of layers");
    }
    for (const Json &index : *indexes) {
        if (index.count() == nullptr || *index.count() >= layers) {
            fields.refuse(kAttention, "layers below num_hidden_layers");
        }
        convolutions[*index.count()] = false;
    }
    return convolutions;
}

std::vector<bool> read_lfm_kinds(const Fields &fields, uint32_t layers) {
    if (!fields.has("layer_types")) {
        return read_indexes(fields, layers);
    }
    const Json::Array *types = fields.object.find("layer_types")->array();
    if (types == nullptr || types->size() != layers) {
        fields.refuse("layer_types", "an array with one entry for each of num_hidden_layers");
    }
    std::vector<bool> convolutions;
    for (const Json &type : *types) {
        const std::string name = type.text() != nullptr ? *type.text() : "";
        convolutions.push_back(name == "conv");
        if (name != "conv" && name != "full_attention") {
            fail(Status::unsupported,
                 "%slayer_types[%zu]: %s is not supported (full_attention and conv are)",
                 fields.name.c_str(), convolutions.size() - 1, shown(type).c_str());
        }
    }
    return convolutions;
}

// Returns the width of the MLP: two thirds of the one given, times a factor, rounded up to a
// multiple.
uint32_t read_width(const Fields &fields) {
    const char *key = fields.has("block_ff_dim") ? "block_ff_dim" : "intermediate_size";
    const uint32_t given = fields.count(key, kWidthMax, 12288);
    if (!fields.flag("block_auto_adjust_ff_dim", true)) {
        return given;
    }
    const uint32_t multiple = fields.count("block_multiple_of", kWidthMax, 256);
    const double factor = fields.positive("block_ffn_dim_multiplier", 1.0);
    const double width = factor * static_cast<double>(2 * uint64_t{given} / 3);
    if (!(width >= 1 && width <= double{kWidthMax})) {
        fields.refuse("block_ffn_dim_multiplier", "a factor that gives a width of the MLP");
    }
    return (static_cast<uint32_t>(width) + multiple - 1) / multiple * multiple;
}

Config read_lfm2(const Fields &fields) {
    Config config = parse_decoder(fields, {"lfm2", 8, 0, 128000, 1e-5, 12288});
    config.norm_eps = static_cast<float>(fields.positive("norm_eps", 1e-5));
    config.intermediate = read_width(fields);
    const bool tied = fields.flag("tie_word_embeddings", true);
    config.tied_head = fields.flag("tie_embedding", tied);
    config.operator_names = true;
    if (fields.flag("conv_bias", false)) {
        fail(Status::unsupported, "%sconv_bias is not supported", fields.name.c_str());
    }
    config.recurrent.taps = fields.count("conv_L_cache", kLfmTapsMost, 3, 2);
    const char *base = fields.has("theta") ? "theta" : "rope_theta";
    set_lfm_kinds(fields.name, read_lfm_kinds(fields, config.layers),
                  parse_rope(fields, "full_attention", base, 1e6), config);
    return config;
}

void read_lfm2_gguf(const Keys &keys, Config &config) {
    config.recurrent.taps = keys.count(kTaps, kLfmTapsMost, {}, 2);
    std::vector<bool> convolutions(config.layers);
    if (keys.file.is_array(keys.name(kHeadCounts))) {
        const std::vector<int64_t> counts = *keys.file.integers(keys.name(kHeadCounts));
        std::transform(counts.begin(), counts.end(), convolutions.begin(),
                       [](int64_t count) { return count == 0; });
    }
    if (keys.count("attention.sliding_window", kContextMax, 0, 0) != 0) {
        unsupported(keys.file, "metadata " + keys.name("attention.sliding_window") +
                                   ": windows of lfm2 are not supported");
    }
    set_lfm_kinds(keys.file.names[0] + ": metadata " + keys.name(""), convolutions,
                  parse_rope(keys, 1e6), config);
}

void write_lfm2_gguf(const Config &config, const WrittenKeys &keys) {
    keys.integer(kTaps, config.recurrent.taps);
}

} // namespace

const Family kLfm2 = {.name = "lfm2",
                      .shown = "LFM2",
                      .published = {{"lfm2", "Lfm2ForCausalLM"}, {}},
                      .read = read_lfm2,
                      .bos = 1,
                      .eos = 2,
                      .gguf = "lfm2",
                      .gguf_pairs = false,
                      .read_gguf = read_lfm2_gguf,
                      .gguf_pattern = 0,
                      .write_gguf = write_lfm2_gguf,
                      .layers_without_heads = true,
                      .limits = "mixtures of experts; evicting positions; devices"};

} // namespace stasis
