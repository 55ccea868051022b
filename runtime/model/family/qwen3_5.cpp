// Qwen3.5: hybrids of Gated DeltaNet layers and attention with an output gate, dense or with
// mixtures of experts, alone or inside a multimodal model. Defaults of absent fields: transformers,
// Qwen3_5TextConfig and Qwen3_5MoeTextConfig. The metadata of GGUF files: llama.cpp's converter and
// reader (qwen35, qwen35moe; conversion/qwen.py, src/models/qwen35.cpp).
#include "runtime/model/family/family.h"

#include <algorithm>

namespace stasis {

namespace {

constexpr uint32_t kUsualInterval = 4; // of attention layers, where a file does not say
constexpr uint32_t kTapsMost = 16;
constexpr char kInterval[] = "full_attention_interval"; // in both formats
// In GGUF files.
constexpr char kKinds[] = "attention.recurrent_layers";
constexpr char kShared[] = "expert_shared_feed_forward_length";

// The names in a file of the sizes of recurrent layers.
struct RecurrentNames {
    std::string file;
    const char *key_heads, *value_heads, *key_dim, *value_dim;
};

void check_recurrent(const Recurrent &sizes, const RecurrentNames &names) {
    const char *file = names.file.c_str();
    if (sizes.value_heads % sizes.key_heads != 0) {
        fail(Status::corrupt, "%s%s (%u) is not a multiple of %s (%u)", file, names.value_heads,
             sizes.value_heads, names.key_heads, sizes.key_heads);
    }
    if (sizes.channels() > kWidthMax) {
        fail(Status::corrupt,
             "%s2 times %s (%u) times %s (%u), and %s (%u) times %s (%u), together exceed %u", file,
             names.key_heads, sizes.key_heads, names.key_dim, sizes.key_dim, names.value_heads,
             sizes.value_heads, names.value_dim, sizes.value_dim, kWidthMax);
    }
}

// Sets the layers, of which those in `recurrent` are not attention.
void set_kinds(const std::string &file, const std::vector<bool> &recurrent, const Rope &rope,
               Config &config) {
    bool attention = false;
    for (const bool is_recurrent : recurrent) {
        LayerConfig layer;
        layer.recurrent = is_recurrent;
        attention = attention || !is_recurrent;
        config.layer.push_back(layer);
    }
    if (!attention) {
        fail(Status::unsupported, "%sno layer has attention, which is not supported", file.c_str());
    }
    rope_index(config, rope);
}

// All layers are recurrent but every interval-th.
std::vector<bool> by_interval(uint32_t layers, uint32_t interval) {
    std::vector<bool> recurrent(layers);
    for (uint32_t i = 0; i < layers; ++i) {
        recurrent[i] = (i + 1) % interval != 0;
    }
    return recurrent;
}

std::vector<bool> read_kinds(const Fields &fields, uint32_t layers) {
    if (!fields.has("layer_types")) {
        return by_interval(layers, fields.count(kInterval, kLayersMax, kUsualInterval));
    }
    const Json::Array *types = fields.object.find("layer_types")->array();
    if (types == nullptr || types->size() != layers) {
        fields.refuse("layer_types", "an array with one entry for each of num_hidden_layers");
    }
    std::vector<bool> recurrent;
    for (const Json &type : *types) {
        const std::string name = type.text() != nullptr ? *type.text() : "";
        recurrent.push_back(name == "linear_attention");
        if (name != "linear_attention" && name != "full_attention") {
            fail(Status::unsupported,
                 "%slayer_types[%zu]: %s is not supported (full_attention and linear_attention "
                 "are)",
                 fields.name.c_str(), recurrent.size() - 1, shown(type).c_str());
        }
    }
    return recurrent;
}

// Reads the recurrent layers' sizes, the kinds of layers and RoPE. Sections of RoPE, which tell the
// axes of images apart, do not matter for text: all three positions of a token are the same.
void read_hybrid(const Fields &fields, Config &config) {
    Recurrent &sizes = config.recurrent;
    sizes.key_heads = fields.count("linear_num_key_heads", kWidthMax, 16);
    sizes.value_heads = fields.count("linear_num_value_heads", kWidthMax, 32);
    sizes.key_dim = fields.count("linear_key_head_dim", kHeadDimMax, 128);
    sizes.value_dim = fields.count("linear_value_head_dim", kHeadDimMax, 128);
    sizes.taps = fields.count("linear_conv_kernel_dim", kTapsMost, 4, 2);
    check_recurrent(sizes, {fields.name, "linear_num_key_heads", "linear_num_value_heads",
                            "linear_key_head_dim", "linear_value_head_dim"});
    config.rotary_dim = parse_rotary_dim(fields, config.head_dim, 0.25);
    set_kinds(fields.name, read_kinds(fields, config.layers),
              parse_rope(fields, "full_attention", "rope_theta", 10000.0, Rotary::part), config);
}

Config read_text(const Fields &fields, const DecoderDefaults &defaults, bool tied_fallback) {
    Config config = parse_decoder(fields, defaults);
    config.tied_head = fields.flag("tie_word_embeddings", tied_fallback);
    config.norm_plus_one = true;
    config.query_key_norm = true;
    config.attention_bias = config.output_bias = fields.flag("attention_bias", false);
    config.output_gate = fields.flag("attn_output_gate", true);
    read_hybrid(fields, config);
    config.mtp_layers = fields.count("mtp_num_hidden_layers", kLayersMax, 0, 0);
    if (fields.flag("mtp_use_dedicated_embeddings", false)) {
        config.mtp_layers = 0; // such a head is not used
    }
    return config;
}

Config read_qwen35_text(const Fields &fields, bool tied_fallback) {
    return read_text(fields, {"qwen3_5", 4, 256, 32768, 1e-6}, tied_fallback);
}

// Every layer has experts, and their shares are always renormalised.
Config read_qwen35_moe_text(const Fields &fields, bool tied_fallback) {
    Config config = read_text(fields, {"qwen3_5_moe", 2, 256, 32768, 1e-6, 0}, tied_fallback);
    config.experts = parse_experts(fields, {256, 8, 512});
    config.experts.shared = fields.count("shared_expert_intermediate_size", kWidthMax, 512);
    config.experts.renormalised = true;
    for (LayerConfig &layer : config.layer) {
        layer.experts = true;
    }
    return config;
}

// Reads a text model, or the one inside a multimodal model.
Config read_inside(const Fields &fields, const char *text_type,
                   Config (*read)(const Fields &, bool tied_fallback)) {
    if (fields.text("model_type", "") == text_type) {
        return read(fields, false);
    }
    const Fields text = fields.child("text_config");
    const std::string type = text.text("model_type", text_type);
    if (type != text_type) {
        fail(Status::unsupported, "%smodel_type \"%s\" is not supported (%s is)", text.name.c_str(),
             type.c_str(), text_type);
    }
    refuse_unsupported(text);
    return read(text, fields.flag("tie_word_embeddings", false));
}

Config read_qwen35(const Fields &fields) {
    return read_inside(fields, "qwen3_5_text", read_qwen35_text);
}

Config read_qwen35_moe(const Fields &fields) {
    return read_inside(fields, "qwen3_5_moe_text", read_qwen35_moe_text);
}

// Reads which layers are recurrent: listed one by one, or all but every n-th.
std::vector<bool> read_kinds(const Keys &keys, uint32_t blocks) {
    if (!keys.file.is_array(keys.name(kKinds))) {
        return by_interval(blocks, keys.count(kInterval, kLayersMax, kUsualInterval));
    }
    std::vector<bool> recurrent = *keys.file.booleans(keys.name(kKinds));
    if (recurrent.size() != blocks) {
        keys.refuse(kKinds, "one for each of " + std::to_string(blocks) + " layers",
                    std::to_string(recurrent.size()));
    }
    return recurrent;
}

// Reads how many of the blocks are an MTP head's, the last ones; then they do not count as layers.
// A head with embeddings or an output of its own is not used.
void read_mtp(const Keys &keys, Config &config) {
    config.mtp_layers = keys.count(kGgufPredicting, config.layers - 1, 0, 0);
    config.layers -= config.mtp_layers;
    const std::string block = "blk." + std::to_string(config.layers) + ".nextn.";
    for (const char *own : {"embed_tokens.weight", "shared_head_head.weight"}) {
        if (keys.file.tensors.count(block + own) != 0) {
            config.mtp_layers = 0;
        }
    }
}

// Norm weights in GGUF files include the one that is added, ssm_a is the rate itself, and value
// heads are tiled.
void read_qwen35_gguf(const Keys &keys, Config &config) {
    config.query_key_norm = true;
    config.output_gate = true;
    Recurrent &sizes = config.recurrent;
    sizes.key_heads = keys.count("ssm.group_count", kWidthMax);
    sizes.value_heads = keys.count("ssm.time_step_rank", kWidthMax);
    sizes.key_dim = keys.count("ssm.state_size", kHeadDimMax);
    sizes.taps = keys.count("ssm.conv_kernel", kTapsMost, {}, 2);
    const uint32_t value_size = keys.count("ssm.inner_size", kWidthMax);
    sizes.value_dim = value_size / sizes.value_heads;
    if (value_size % sizes.value_heads != 0 || sizes.value_dim > kHeadDimMax) {
        keys.refuse("ssm.inner_size",
                    "a multiple of time_step_rank (" + std::to_string(sizes.value_heads) +
                        "), up to " + std::to_string(kHeadDimMax) + " times it",
                    std::to_string(value_size));
    }
    const std::string file = keys.file.names[0] + ": metadata ";
    check_recurrent(sizes, {file + keys.name(""), "ssm.group_count", "ssm.time_step_rank",
                            "ssm.state_size", "ssm.inner_size / ssm.time_step_rank"});
    sizes.tiled = sizes.value_heads != sizes.key_heads;
    sizes.stored_rates = true;

    std::vector<bool> recurrent = read_kinds(keys, config.layers);
    read_mtp(keys, config);
    recurrent.resize(config.layers);
    set_kinds(file + keys.name(""), recurrent, parse_rope(keys, 10000.0), config);
}

void read_qwen35_moe_gguf(const Keys &keys, Config &config) {
    config.experts = parse_experts(keys, config); // while the layers are all blocks of the file
    read_qwen35_gguf(keys, config);
    config.experts.shared = keys.count(kShared, kWidthMax);
    config.experts.renormalised = true;
    for (LayerConfig &layer : config.layer) {
        layer.experts = true;
    }
}

// Writes which layers are recurrent: all but every n-th, or one by one.
void write_kinds(const Config &config, const WrittenKeys &keys) {
    std::vector<bool> recurrent;
    for (const LayerConfig &layer : config.layer) {
        recurrent.push_back(layer.recurrent);
    }
    recurrent.resize(config.layers + config.mtp_layers); // an MTP head has attention
    const auto attention = std::find(recurrent.begin(), recurrent.end(), false);
    const auto interval = static_cast<uint32_t>(attention - recurrent.begin()) + 1;
    std::vector<bool> regular = by_interval(config.layers, interval);
    regular.resize(recurrent.size());
    if (recurrent == regular) {
        keys.integer(kInterval, interval);
    } else {
        keys.metadata.booleans(keys.prefix + kKinds, recurrent);
    }
}

void write_qwen35_gguf(const Config &config, const WrittenKeys &keys) {
    const Recurrent &sizes = config.recurrent;
    keys.integer("ssm.conv_kernel", sizes.taps);
    keys.integer("ssm.state_size", sizes.key_dim);
    keys.integer("ssm.group_count", sizes.key_heads);
    keys.integer("ssm.time_step_rank", sizes.value_heads);
    keys.integer("ssm.inner_size", static_cast<uint32_t>(sizes.value_size()));
    write_kinds(config, keys);
    if (config.mtp_layers != 0) {
        keys.integer(kGgufPredicting, config.mtp_layers);
    }
    // Other readers ask for the sections. Text is the same in any that cover all pairs, which the
    // published ones deal out in turn.
    const auto pairs = static_cast<int32_t>(config.rotary() / 2);
    keys.metadata.integers(keys.prefix + "rope.dimension_sections",
                           {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0});
}

void write_qwen35_moe_gguf(const Config &config, const WrittenKeys &keys) {
    write_qwen35_gguf(config, keys);
    describe_experts(config, keys);
    keys.integer(kShared, config.experts.shared);
}

} // namespace

const Family kQwen35 = {.name = "qwen3_5",
                        .shown = "Qwen3.5",
                        .published = {{"qwen3_5", "Qwen3_5ForConditionalGeneration"},
                                      {"qwen3_5_text", "Qwen3_5ForCausalLM"}},
                        .read = read_qwen35,
                        .bos = kNoToken,
                        .eos = kNoToken,
                        .gguf = "qwen35",
                        .gguf_pairs = false,
                        .read_gguf = read_qwen35_gguf,
                        .gguf_pattern = 0,
                        .write_gguf = write_qwen35_gguf,
                        .part_turned = true,
                        .limits = "images; evicting positions; devices"};

const Family kQwen35Moe = {.name = "qwen3_5_moe",
                           .shown = "Qwen3.5 MoE",
                           .published = {{"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration"},
                                         {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM"}},
                           .read = read_qwen35_moe,
                           .bos = kNoToken,
                           .eos = kNoToken,
                           .gguf = "qwen35moe",
                           .gguf_pairs = false,
                           .read_gguf = read_qwen35_moe_gguf,
                           .gguf_pattern = 0,
                           .write_gguf = write_qwen35_moe_gguf,
                           .part_turned = true,
                           .limits = "images; evicting positions; devices"};

} // namespace stasis
