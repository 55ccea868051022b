// Granite 4 H: Mamba-2 and attention, in any order, dense. Defaults of absent fields: transformers,
// GraniteMoeHybridConfig. The metadata of GGUF files: llama.cpp's converter and reader
// (granitehybrid; conversion/granite.py, src/models/granite-hybrid.cpp), by which a layer without
// attention has no key and value heads, and which norms Mamba's results by group.
#include "runtime/model/family/family.h"

#include <algorithm>

namespace stasis {

namespace {

constexpr uint32_t kScanTapsMost = 16;
// In GGUF files, as the next ones.
constexpr char kAttentionHeads[] = "attention.head_count_kv";
constexpr char kTurning[] = "rope.scaling.finetuned";
constexpr char kEmbeddingScale[] = "embedding_scale";
constexpr char kResidualScale[] = "residual_scale";
constexpr char kLogitsDivisor[] = "logit_scale";
constexpr char kScanTaps[] = "ssm.conv_kernel";
constexpr char kStateSize[] = "ssm.state_size";
constexpr char kGroups[] = "ssm.group_count";
constexpr char kHeads[] = "ssm.time_step_rank";
constexpr char kInnerSize[] = "ssm.inner_size";

// Sets the layers, of which those in `mamba` are not attention.
void set_granite_kinds(const std::string &file, const std::vector<bool> &mamba, const Rope &rope,
                       Config &config) {
    set_hybrid_layers(file, mamba, "Mamba", rope, config);
    config.recurrent.scan = true;
}

std::vector<bool> read_granite_kinds(const Fields &fields, uint32_t layers) {
    const char *key = fields.has("layers_block_type") ? "layers_block_type" : "layer_types";
    if (!fields.has(key)) {
        return std::vector<bool>(layers, true); // refused
    }
    const Json::Array *types = fields.object.find(key)->array();
    if (types == nullptr || types->size() != layers) {
        fields.refuse(key, "an array with one entry for each of num_hidden_layers");
    }
    std::vector<bool> mamba;
    for (const Json &type : *types) {
        const std::string name = type.text() != nullptr ? *type.text() : "";
        mamba.push_back(name == "mamba");
        if (name != "mamba" && name != "attention") {
            fail(Status::unsupported, "%s%s[%zu]: %s is not supported (attention and mamba are)",
                 fields.name.c_str(), key, mamba.size() - 1, shown(type).c_str());
        }
    }
    return mamba;
}

// A limit of the steps; infinity is written as text, or as an object, because JSON has none.
std::optional<double> limit_of(const Json &json) {
    const Json *text = json.object() != nullptr ? json.find_value("__float__") : &json;
    if (text != nullptr && text->text() != nullptr && *text->text() == "Infinity") {
        return std::numeric_limits<double>::infinity();
    }
    return json.number();
}

void read_step_limits(const Fields &fields, Recurrent &sizes) {
    constexpr char kLimits[] = "time_step_limit", kExpected[] = "two numbers from 0, ascending";
    if (!fields.has(kLimits)) {
        return;
    }
    const Json::Array *limits = fields.object.find(kLimits)->array();
    if (limits == nullptr || limits->size() != 2) {
        fields.refuse(kLimits, kExpected);
    }
    const std::optional<double> least = limit_of((*limits)[0]), most = limit_of((*limits)[1]);
    if (!least || !most || !(*least >= 0 && *least <= 0x1p100) || !(*most >= *least)) {
        fields.refuse(kLimits, kExpected);
    }
    sizes.step_least = static_cast<float>(*least);
    sizes.step_most =
        *most > 0x1p100 ? std::numeric_limits<float>::infinity() : static_cast<float>(*most);
}

void read_scan(const Fields &fields, const Config &config, Recurrent &sizes) {
    const uint64_t inner = uint64_t{fields.count("mamba_expand", kWidthMax, 2)} * config.hidden;
    sizes.key_heads = fields.count("mamba_n_groups", kWidthMax, 1);
    sizes.key_dim = fields.count("mamba_d_state", kHeadDimMax, 256);
    sizes.value_heads = fields.count("mamba_n_heads", kWidthMax, 128);
    sizes.taps = fields.count("mamba_d_conv", kScanTapsMost, 4, 2);
    sizes.convolution_bias = fields.flag("mamba_conv_bias", true);
    const Json *head = fields.object.find_value("mamba_d_head");
    const bool follows = head == nullptr || (head->text() != nullptr && *head->text() == "auto");
    const uint64_t usual = inner / sizes.value_heads;
    sizes.value_dim = follows ? static_cast<uint32_t>(std::min<uint64_t>(usual, kHeadDimMax))
                              : fields.count("mamba_d_head", kHeadDimMax);
    if (sizes.value_size() != inner || inner == 0) {
        fields.refuse("mamba_n_heads", "a number that times mamba_d_head (up to 1024) is "
                                       "mamba_expand times hidden_size");
    }
    if (sizes.value_heads % sizes.key_heads != 0) {
        fields.refuse("mamba_n_groups", "a divisor of mamba_n_heads");
    }
    if (sizes.product_size() > kWidthMax) {
        fields.refuse("mamba_d_state", "sizes of Mamba that together do not exceed 2^20");
    }
    read_step_limits(fields, sizes);
}

Rope read_granite_rope(const Fields &fields) {
    const std::string kind = fields.text("position_embedding_type", "nope");
    if (kind != "nope" && kind != "rope") {
        fail(Status::unsupported,
             "%sposition_embedding_type \"%s\" is not supported (nope and rope are)",
             fields.name.c_str(), kind.c_str());
    }
    return kind == "rope" ? parse_rope(fields, "full_attention", "rope_theta", 10000.0)
                          : Rope{.scaling = RopeScaling::still};
}

Config read_granite4(const Fields &fields) {
    Config config = parse_decoder(fields, {"granitemoehybrid", 0, 0, 2048, 1e-6, 11008});
    config.intermediate = fields.count("shared_intermediate_size", kWidthMax, 1024);
    config.attention_bias = config.output_bias = fields.flag("attention_bias", false);
    config.shared_names = true;
    const auto scale = [&](const char *key) {
        return static_cast<float>(fields.positive(key, 1.0));
    };
    config.embedding_scale = scale("embedding_multiplier");
    config.attention_scale = scale("attention_multiplier");
    config.residual_scale = scale("residual_multiplier");
    config.logits_divisor = scale("logits_scaling");
    if (fields.count("num_local_experts", kExpertsMax, 8, 0) != 0) {
        fail(Status::unsupported,
             "%snum_local_experts: mixtures of experts of this architecture are not supported",
             fields.name.c_str());
    }
    if (fields.flag("mamba_proj_bias", false)) {
        fail(Status::unsupported, "%smamba_proj_bias is not supported", fields.name.c_str());
    }
    if (fields.text("normalization_function", "rmsnorm") != "rmsnorm" ||
        config.activation != Activation::silu) {
        fail(Status::unsupported,
             "%shidden_act of this architecture other than silu, and a normalization_function "
             "other than rmsnorm, are not supported",
             fields.name.c_str());
    }
    read_scan(fields, config, config.recurrent);
    set_granite_kinds(fields.name, read_granite_kinds(fields, config.layers),
                      read_granite_rope(fields), config);
    return config;
}

void read_granite4_gguf(const Keys &keys, Config &config) {
    Recurrent &sizes = config.recurrent;
    sizes.taps = keys.count(kScanTaps, kScanTapsMost, {}, 2);
    sizes.key_dim = keys.count(kStateSize, kHeadDimMax);
    sizes.key_heads = keys.count(kGroups, kWidthMax);
    sizes.value_heads = keys.count(kHeads, kWidthMax);
    const uint32_t inner = keys.count(kInnerSize, kWidthMax);
    sizes.value_dim = inner / sizes.value_heads;
    if (inner % sizes.value_heads != 0 || sizes.value_dim > kHeadDimMax) {
        keys.refuse(kInnerSize,
                    "a multiple of time_step_rank (" + std::to_string(sizes.value_heads) +
                        "), up to " + std::to_string(kHeadDimMax) + " times it",
                    std::to_string(inner));
    }
    if (sizes.key_heads != 1) { // whose norm would differ between the formats
        unsupported(keys.file, "metadata " + keys.name(kGroups) + " other than 1 is not supported");
    }
    sizes.stored_rates = true;
    config.embedding_scale = static_cast<float>(keys.positive(kEmbeddingScale, 1.0));
    config.residual_scale = static_cast<float>(keys.positive(kResidualScale, 1.0));
    config.logits_divisor = static_cast<float>(keys.positive(kLogitsDivisor, 1.0));
    config.interleaved_rope = true;

    std::vector<bool> mamba(config.layers);
    if (keys.file.is_array(keys.name(kAttentionHeads))) {
        const std::vector<int64_t> counts = *keys.file.integers(keys.name(kAttentionHeads));
        std::transform(counts.begin(), counts.end(), mamba.begin(),
                       [](int64_t count) { return count == 0; });
    }
    const auto first = std::find(mamba.begin(), mamba.end(), true) - mamba.begin();
    sizes.convolution_bias =
        keys.file.tensors.count("blk." + std::to_string(first) + ".ssm_conv1d.bias") != 0;
    const bool turning = keys.file.boolean(keys.name(kTurning)).value_or(true);
    set_granite_kinds(keys.file.names[0] + ": metadata " + keys.name(""), mamba,
                      turning ? parse_rope(keys, 10000.0) : Rope{.scaling = RopeScaling::still},
                      config);
}

void write_granite4_gguf(const Config &config, const WrittenKeys &keys) {
    const Recurrent &sizes = config.recurrent;
    keys.integer(kScanTaps, sizes.taps);
    keys.integer(kStateSize, sizes.key_dim);
    keys.integer(kGroups, sizes.key_heads);
    keys.integer(kHeads, sizes.value_heads);
    keys.integer(kInnerSize, static_cast<uint32_t>(sizes.value_size()));
    keys.number(kEmbeddingScale, static_cast<double>(config.embedding_scale));
    keys.number(kResidualScale, static_cast<double>(config.residual_scale));
    keys.number(kLogitsDivisor, static_cast<double>(config.logits_divisor));
    keys.metadata.boolean(keys.prefix + kTurning, config.ropes[0].scaling != RopeScaling::still);
}

} // namespace

const Family kGranite4 = {
    .name = "granitemoehybrid",
    .shown = "Granite 4 H",
    .published = {{"granitemoehybrid", "GraniteMoeHybridForCausalLM"}, {}},
    .read = read_granite4,
    .bos = 1,
    .eos = 2,
    .gguf = "granitehybrid",
    .gguf_pairs = true,
    .read_gguf = read_granite4_gguf,
    .gguf_pattern = 0,
    .write_gguf = write_granite4_gguf,
    .layers_without_heads = true,
    .limits = "mixtures of experts, models without Mamba; evicting positions; devices"};

} // namespace stasis
