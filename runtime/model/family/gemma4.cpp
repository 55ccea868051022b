// Gemma 4: the text model, alone or inside the multimodal one. Layers with a window and without
// have heads of their own sizes; the last layers use the keys and values of earlier ones; small
// models give each layer inputs of its own, the mixture has experts beside an MLP. Fields and their
// defaults: transformers, Gemma4TextConfig; what they mean: modeling_gemma4.py. GGUF files:
// llama.cpp, conversion/gemma.py and src/models/gemma4.cpp.
#include "runtime/model/family/family.h"

#include <algorithm>
#include <cmath>

namespace stasis {

namespace {

constexpr uint32_t kGemmaPattern = 6; // every sixth layer has no window
constexpr char kInputs[] = "embedding_length_per_layer_input";
constexpr char kShared[] = "attention.shared_kv_layers";
constexpr char kLocalBaseKey[] = "rope.freq_base_swa";

// What files do not say.
void set_gemma4_conventions(Config &config) {
    config.query_key_norm = config.value_norm = true;
    config.post_norms = true;
    config.layer_scalars = true;
    config.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(config.hidden)));
    config.attention_scale = 1.0F;
}

// The last layers use the keys and values of the last layer before them of their kind.
void share_keys(uint32_t shared, Config &config) {
    const uint32_t own = config.layers - shared;
    for (uint32_t i = own; i < config.layers; ++i) {
        for (uint32_t from = 0; from < own; ++from) {
            if (config.layer[from].window == config.layer[i].window) {
                config.layer[i].keys_of = from;
            }
        }
    }
}

// Returns whether every layer has keys, its own or another's.
bool has_sources(const std::vector<bool> &local, uint32_t shared) {
    const auto own = local.end() - shared;
    return std::all_of(own, local.end(),
                       [&](bool kind) { return std::find(local.begin(), own, kind) != own; });
}

std::vector<bool> read_gemma4_kinds(const Fields &fields, uint32_t layers) {
    if (fields.has("layer_types")) {
        return parse_layer_types(fields, layers);
    }
    std::vector<bool> local(layers);
    for (uint32_t i = 0; i < layers; ++i) {
        local[i] = (i + 1) % kGemmaPattern != 0 && i + 1 != layers;
    }
    return local;
}

void read_gemma4_layers(const Fields &fields, Config &config) {
    const std::vector<bool> local = read_gemma4_kinds(fields, config.layers);
    const uint32_t window = fields.count("sliding_window", kContextMax, 512);
    const uint32_t shared = fields.count("num_kv_shared_layers", config.layers - 1, 0, 0);
    if (!has_sources(local, shared)) {
        fields.refuse("num_kv_shared_layers",
                      "a number with which each kind of layer has keys of its own");
    }
    const Rope global_rope = parse_proportional_rope(fields, config, config.head_dim_of({}));
    const Rope local_rope = parse_rope(fields, "sliding_attention", "rope_local_base_freq", 1e4);
    const bool wide = fields.flag("use_double_wide_mlp", false);
    for (uint32_t i = 0; i < config.layers; ++i) {
        LayerConfig layer;
        layer.window = local[i] ? window : 0;
        layer.rope = rope_index(config, local[i] ? local_rope : global_rope);
        layer.experts = config.experts.count != 0;
        layer.intermediate = wide && i >= config.layers - shared ? 2 * config.intermediate : 0;
        config.layer.push_back(layer);
    }
    share_keys(shared, config);
}

void read_gemma4_sizes(const Fields &fields, Config &config) {
    config.layers = fields.count("num_hidden_layers", kLayersMax, 30);
    config.hidden = fields.count("hidden_size", kWidthMax, 2304);
    config.heads = fields.count("num_attention_heads", kWidthMax, 8);
    config.kv_heads = fields.count("num_key_value_heads", kWidthMax, 4);
    config.head_dim = fields.count("head_dim", kWidthMax, 256);
    config.intermediate = fields.count("intermediate_size", kWidthMax / 2, 9216);
    config.vocabulary = fields.count("vocab_size", kVocabularyMax, 262144);
    config.context = fields.count("max_position_embeddings", kContextMax, 131072);
    const uint32_t global_dim = fields.count("global_head_dim", kWidthMax, 512);
    config.global_head_dim = global_dim == config.head_dim ? 0 : global_dim;
    config.global_keys_as_values = fields.flag("attention_k_eq_v", false);
    if (config.global_keys_as_values) {
        const uint32_t kv_heads =
            fields.count("num_global_key_value_heads", kWidthMax, config.kv_heads);
        config.global_kv_heads = kv_heads == config.kv_heads ? 0 : kv_heads;
    }
    config.layer_inputs = fields.count("hidden_size_per_layer_input", kWidthMax, 256, 0);
    if (config.layer_inputs != 0 &&
        fields.count("vocab_size_per_layer_input", kVocabularyMax, 262144) != config.vocabulary) {
        fail(Status::unsupported,
             "%svocab_size_per_layer_input that is not vocab_size (%u) is not supported",
             fields.name.c_str(), config.vocabulary);
    }
}

// Leaves no sizes of layers that there are not.
void settle_sizes(const std::vector<bool> &local, Config &config) {
    if (std::find(local.begin(), local.end(), true) == local.end()) {
        config.head_dim = config.head_dim_of({});
        config.kv_heads = config.kv_heads_of({});
        config.global_head_dim = config.global_kv_heads = 0;
    } else if (std::find(local.begin(), local.end(), false) == local.end()) {
        config.global_head_dim = config.global_kv_heads = 0;
        config.global_keys_as_values = false;
    }
}

// Checks the heads of layers without a window as check_sizes does those of the others.
void check_global(const Config &config, const SizeNames &names) {
    Config global = config;
    global.kv_heads = config.kv_heads_of({});
    global.head_dim = config.head_dim_of({});
    check_sizes(global, names);
}

Config read_gemma4_text(const Fields &fields) {
    Config config;
    config.architecture = "gemma4";
    read_gemma4_sizes(fields, config);
    settle_sizes(read_gemma4_kinds(fields, config.layers), config);
    check_global(
        config, {fields.name.substr(0, fields.name.find(':')), "num_attention_heads",
                 config.global_kv_heads != 0 ? "num_global_key_value_heads" : "num_key_value_heads",
                 "global_head_dim"});
    set_gemma4_conventions(config);
    config.norm_eps = static_cast<float>(fields.positive("rms_norm_eps", 1e-6));
    config.attention_bias = config.output_bias = fields.flag("attention_bias", false);
    config.tied_head = fields.flag("tie_word_embeddings", true);
    config.activation = parse_activation(fields, "hidden_activation", "gelu_pytorch_tanh");
    if (fields.has("final_logit_softcapping")) {
        config.final_softcap = static_cast<float>(fields.positive("final_logit_softcapping"));
    }
    if (fields.flag("enable_moe_block", false)) {
        config.experts = parse_experts(
            fields,
            {.count = 128, .chosen = 8, .intermediate = 704, .chosen_key = "top_k_experts"});
        config.experts.renormalised = config.experts.beside_mlp = true;
    }
    read_gemma4_layers(fields, config);
    return config;
}

Config read_gemma4(const Fields &fields) {
    if (fields.text("model_type", "") == "gemma4_text") {
        return read_gemma4_text(fields);
    }
    const Fields text = fields.child("text_config");
    const std::string type = text.text("model_type", "gemma4_text");
    if (type != "gemma4_text") {
        fail(Status::unsupported, "%smodel_type \"%s\" is not supported (gemma4_text is)",
             text.name.c_str(), type.c_str());
    }
    refuse_unsupported(text);
    return read_gemma4_text(text);
}

// Returns the count that all layers of a kind have; 0: there is none of the kind.
uint32_t count_of_kind(const Keys &keys, const char *key, const std::vector<uint32_t> &counts,
                       const std::vector<bool> &local, bool kind) {
    uint32_t found = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
        if (local[i] != kind) {
            continue;
        }
        if (found != 0 && counts[i] != found) {
            unsupported(keys.file,
                        "metadata " + keys.name(key) +
                            ": layers of one kind with different sizes are not supported");
        }
        found = counts[i];
    }
    return found;
}

void read_gemma4_gguf_sizes(const Keys &keys, Config &config) {
    constexpr char kHeads[] = "attention.head_count_kv", kMlp[] = "feed_forward_length";
    const std::vector<bool> local = parse_local_layers(keys, config.layers, kGemmaPattern);
    const std::vector<uint32_t> heads = keys.counts_of_layers(kHeads, kWidthMax, config.layers);
    const uint32_t local_heads = count_of_kind(keys, kHeads, heads, local, true);
    const uint32_t global_heads = count_of_kind(keys, kHeads, heads, local, false);
    config.kv_heads = local_heads != 0 ? local_heads : global_heads;
    config.global_kv_heads = global_heads == config.kv_heads ? 0 : global_heads;
    const uint32_t global_dim = keys.count("attention.key_length", kWidthMax);
    config.head_dim = keys.count("attention.key_length_swa", kWidthMax, global_dim);
    config.global_head_dim = global_dim == config.head_dim ? 0 : global_dim;
    const std::pair<const char *, uint32_t> lengths[] = {
        {"attention.value_length", global_dim},
        {"attention.value_length_swa", config.head_dim},
        {"rope.dimension_count", global_dim},
        {"rope.dimension_count_swa", config.head_dim}};
    settle_sizes(local, config);
    for (const auto &[key, same] : lengths) {
        if (keys.count(key, kWidthMax, same) != same) {
            unsupported(keys.file, "metadata " + keys.name(key) +
                                       " that is not the length of keys (" + std::to_string(same) +
                                       ") is not supported");
        }
    }
    config.intermediate = keys.counts_of_layers(kMlp, kWidthMax, config.layers)[0];
    check_global(config,
                 {keys.file.names[0] + ": metadata " + keys.architecture, "attention.head_count",
                  "attention.head_count_kv", "attention.key_length"});
}

// Returns the pair from which on nothing turns, by the factors of frequencies: 1 up to there and
// then so large that nothing turns.
uint32_t still_from(const Keys &keys, uint32_t head_dim) {
    constexpr float kLeast = 1e20F; // 2^32 positions turn by less than any rounding
    if (keys.file.tensors.count(kGgufRopeFactors) == 0) {
        fail(Status::corrupt, "%s: tensor %s is missing", keys.file.names[0].c_str(),
             kGgufRopeFactors);
    }
    const std::vector<float> factors =
        parse_rope_factors(keys.file, kGgufRopeFactors, head_dim / 2);
    const auto still =
        std::find_if(factors.begin(), factors.end(), [](float factor) { return factor != 1.0F; });
    if (still == factors.begin() && !factors.empty()) {
        unsupported(keys.file, std::string("tensor ") + kGgufRopeFactors +
                                   " whose first factor is not 1 is not supported");
    }
    if (std::any_of(still, factors.end(), [](float factor) { return factor < kLeast; })) {
        unsupported(keys.file, std::string("tensor ") + kGgufRopeFactors +
                                   " with factors other than 1 and 1e30 is not supported");
    }
    return still == factors.end() ? 0 : static_cast<uint32_t>(still - factors.begin());
}

void read_gemma4_gguf(const Keys &keys, Config &config) {
    set_gemma4_conventions(config);
    config.attention_scale = static_cast<float>(keys.positive("attention.scale", 1.0));
    config.activation = Activation::gelu_tanh;
    config.layer_inputs = keys.count(kInputs, kWidthMax, 0, 0);
    if (keys.count("expert_count", kExpertsMax, 0, 0) != 0) {
        config.experts = parse_experts(keys, config);
        config.experts.renormalised = config.experts.beside_mlp = true;
    }
    const std::vector<bool> local = parse_local_layers(keys, config.layers, kGemmaPattern);
    const uint32_t shared = keys.count(kShared, config.layers - 1, 0, 0);
    if (!has_sources(local, shared)) {
        keys.refuse(kShared, "a number with which each kind of layer has keys of its own",
                    std::to_string(shared));
    }
    const uint32_t global_dim = config.head_dim_of({});
    Rope global_rope = parse_rope(keys, 1e6);
    if (global_rope.scaling != RopeScaling::none) {
        unsupported(keys.file, "metadata " + keys.name("rope.scaling.type") + " is not supported");
    }
    global_rope.rotary = config.global_head_dim;
    if (std::find(local.begin(), local.end(), false) != local.end()) {
        global_rope.still_from = still_from(keys, global_dim);
    }
    Rope local_rope;
    local_rope.base = keys.positive(kLocalBaseKey, 1e4);
    const uint32_t window = keys.count("attention.sliding_window", kContextMax);
    const std::vector<uint32_t> sizes =
        keys.counts_of_layers("feed_forward_length", kWidthMax, config.layers);
    for (uint32_t i = 0; i < config.layers; ++i) {
        LayerConfig layer;
        layer.window = local[i] ? window : 0;
        layer.rope = rope_index(config, local[i] ? local_rope : global_rope);
        layer.experts = config.experts.count != 0;
        layer.intermediate = sizes[i] == config.intermediate ? 0 : sizes[i];
        config.layer.push_back(layer);
        const std::string values = "blk." + std::to_string(i) + ".attn_v.weight";
        if (!local[i] && i < config.layers - shared) {
            config.global_keys_as_values = keys.file.tensors.count(values) == 0;
        }
    }
    share_keys(shared, config);
}

void write_gemma4_gguf_sizes(const Config &config, const WrittenKeys &keys) {
    std::vector<int32_t> heads, sizes;
    for (const LayerConfig &layer : config.layer) {
        heads.push_back(static_cast<int32_t>(config.kv_heads_of(layer)));
        sizes.push_back(static_cast<int32_t>(config.intermediate_of(layer)));
    }
    keys.integers("attention.head_count_kv", heads);
    keys.integers("feed_forward_length", sizes);
    const uint32_t global_dim = config.head_dim_of({});
    for (const char *key :
         {"attention.key_length", "attention.value_length", "rope.dimension_count"}) {
        keys.integer(key, global_dim);
        keys.integer((std::string(key) + "_swa").c_str(), config.head_dim);
    }
}

void write_gemma4_gguf(const Config &config, const WrittenKeys &keys) {
    const auto local = std::find_if(config.layer.begin(), config.layer.end(),
                                    [](const LayerConfig &layer) { return layer.window != 0; });
    if (local != config.layer.end()) {
        keys.number(kLocalBaseKey, config.ropes[local->rope].base);
    }
    keys.integer(kShared, static_cast<uint32_t>(std::count_if(
                              config.layer.begin(), config.layer.end(),
                              [](const LayerConfig &layer) { return !layer.own_keys(); })));
    keys.integer(kInputs, config.layer_inputs);
    if (config.experts.count != 0) {
        describe_experts(config, keys);
    }
}

} // namespace

const Family kGemma4 = {.name = "gemma4",
                        .shown = "Gemma 4",
                        .published = {{"gemma4_text", "Gemma4ForCausalLM"},
                                      {"gemma4", "Gemma4ForConditionalGeneration"}},
                        .read = read_gemma4,
                        .bos = 2,
                        .eos = 1,
                        .gguf = "gemma4",
                        .gguf_pairs = false,
                        .read_gguf = read_gemma4_gguf,
                        .gguf_pattern = kGemmaPattern,
                        .write_gguf = write_gemma4_gguf,
                        .read_gguf_sizes = read_gemma4_gguf_sizes,
                        .write_gguf_sizes = write_gemma4_gguf_sizes,
                        .gguf_lists = true,
                        .limits = "images; devices"};

} // namespace stasis
