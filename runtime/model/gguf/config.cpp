// Converts a GGUF file's metadata to the description that forward.cpp reads. Keys: ggml's
// docs/gguf.md. Where that leaves the meaning open (RoPE pairs of Llama, windows of Gemma 3, absent
// keys), it follows llama.cpp and its converter, which published files are made with and for.
#include "runtime/model/gguf/config.h"

#include <cmath>

#include "format/state/error.h"
#include "runtime/kernels/environment.h"
#include "runtime/model/family/family.h"
#include "runtime/model/model_file.h"

namespace stasis {

namespace {

constexpr char kEmbeddings[] = "token_embd.weight";

bool has_tensor(const GgufFile &file, const char *name) {
    return file.tensors.count(name) != 0;
}

// Refuses keys that change results, unless their values are neutral.
void refuse_unsupported(const Keys &keys, const Config &config) {
    bool amplified = false;
    for (const Rope &rope : config.ropes) {
        const bool is_long = rope.scaling == RopeScaling::longrope;
        amplified = amplified || is_long || rope.scaling == RopeScaling::yarn;
        if (is_long && rope.long_factors.empty()) {
            unsupported(keys.file, "metadata " + keys.name("rope.scaling.type") +
                                       " \"longrope\" is not supported in this architecture");
        }
    }
    if (config.experts.count == 0 && keys.count("expert_count", kExpertsMax, 0, 0) > 1) {
        unsupported(keys.file, "mixtures of experts of the architecture " + keys.architecture +
                                   " are not supported");
    }

    struct Neutral {
        const char *key;
        double value;
        bool used = false; // the config has it
    };
    const bool scaled = config.recurrent.scan; // Granite
    for (const Neutral &neutral :
         {Neutral{"logit_scale", 1, scaled}, Neutral{"embedding_scale", 1, scaled},
          Neutral{"residual_scale", 1, scaled}, Neutral{"attention.clamp_kqv", 0},
          Neutral{"attention.max_alibi_bias", 0},
          Neutral{kGgufQueryGrowth, 0, config.query_growth != 0.0F},
          Neutral{kGgufAmplitude, 1, amplified}}) {
        const std::string name = keys.name(neutral.key);
        if (!neutral.used && keys.file.number(name).value_or(neutral.value) != neutral.value) {
            unsupported(keys.file, "metadata " + name + " is not supported");
        }
    }
    if ((!keys.file.boolean(keys.name("attention.causal")).value_or(true) &&
         !config.bidirectional) ||
        keys.file.boolean(keys.name("use_parallel_residual")).value_or(false)) {
        unsupported(keys.file, "attention that is not causal, and parallel residuals, are not "
                               "supported");
    }
}

// Blocks of integers are read in the layout of version 2, which a file without a version is assumed
// to have.
void refuse_old_blocks(const GgufFile &file) {
    constexpr char kVersion[] = "general.quantization_version";
    constexpr uint64_t kSupported = 2;
    const uint64_t version = file.integer(kVersion).value_or(kSupported);
    for (const auto &[name, tensor] : file.tensors) {
        if (version != kSupported && gguf_block(tensor.type).elements > 1) {
            unsupported(file, "metadata " + std::string(kVersion) + " is " +
                                  std::to_string(version) + "; tensor " + name +
                                  " is read as of version 2");
        }
    }
}

void parse_head_sizes(const Keys &keys, const Family &family, Config &config) {
    if (!keys.has("attention.key_length") && config.hidden % config.heads != 0) {
        keys.refuse("attention.head_count",
                    "a divisor of embedding_length (" + std::to_string(config.hidden) +
                        "), as key_length is not given",
                    std::to_string(config.heads));
    }
    config.head_dim = keys.count("attention.key_length", kWidthMax, config.hidden / config.heads);
    if (keys.count("attention.value_length", kWidthMax, config.head_dim) != config.head_dim) {
        unsupported(keys.file, "metadata " + keys.name("attention.value_length") +
                                   ": values of another length than keys are not supported");
    }
    constexpr char kTurned[] = "rope.dimension_count";
    const uint32_t turned = keys.count(kTurned, kWidthMax, config.head_dim);
    if (turned == config.head_dim) {
        return;
    }
    if (!family.part_turned) {
        unsupported(keys.file, "metadata " + keys.name(kTurned) +
                                   ": rotary embedding of a part of a head is not supported");
    }
    if (turned > config.head_dim || turned % 2 != 0) {
        keys.refuse(kTurned,
                    "an even number up to key_length (" + std::to_string(config.head_dim) + ")",
                    std::to_string(turned));
    }
    config.rotary_dim = turned;
}

// Returns the number of rows of the embeddings, which no key is required to give.
uint32_t parse_vocabulary(const Keys &keys) {
    if (!has_tensor(keys.file, kEmbeddings)) {
        fail(Status::corrupt, "%s: tensor %s is missing", keys.file.names[0].c_str(), kEmbeddings);
    }
    const GgufTensor &embeddings = keys.file.tensor(kEmbeddings);
    if (embeddings.shape.size() != 2 || embeddings.shape[1] > kVocabularyMax) {
        fail(Status::corrupt, "tensor %s in %s: expected a matrix of at most %u rows", kEmbeddings,
             keys.file.names[embeddings.file].c_str(), kVocabularyMax);
    }
    const auto rows = static_cast<uint32_t>(embeddings.shape[1]);
    if (keys.count("vocab_size", kVocabularyMax, rows) != rows) {
        keys.refuse("vocab_size", std::string("as many as ") + kEmbeddings + " has rows",
                    std::to_string(keys.count("vocab_size", kVocabularyMax)) + " and " +
                        std::to_string(rows));
    }
    return rows;
}

float softcap(const Keys &keys, const char *key) {
    return keys.has(key) ? static_cast<float>(keys.positive(key)) : 0.0F;
}

// Reads the sizes of heads and of the MLP, which all layers have.
void parse_sizes(const Keys &keys, const Family &family, Config &config) {
    config.kv_heads = keys.has("attention.head_count_kv")
                          ? keys.count_of_layers("attention.head_count_kv", kWidthMax,
                                                 config.layers, family.layers_without_heads)
                          : config.heads;
    parse_head_sizes(keys, family, config);
    // Where every layer has experts, there may be no other size.
    if (!keys.has("expert_count") || keys.has("feed_forward_length")) {
        config.intermediate = keys.count_of_layers("feed_forward_length", kWidthMax, config.layers);
    }
}

// Reads the keys that all architectures have in common.
Config parse_decoder(const Keys &keys, const Family &family) {
    Config config;
    config.architecture = family.name;
    config.layers = keys.count("block_count", kLayersMax);
    config.hidden = keys.count("embedding_length", kWidthMax);
    config.heads = keys.count_of_layers("attention.head_count", kWidthMax, config.layers);
    if (family.read_gguf_sizes != nullptr) {
        family.read_gguf_sizes(keys, config);
    } else {
        parse_sizes(keys, family, config);
    }
    config.context = keys.count("context_length", kContextMax);
    config.vocabulary = parse_vocabulary(keys);
    config.norm_eps = static_cast<float>(keys.positive("attention.layer_norm_rms_epsilon"));
    const double scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
    config.attention_scale = static_cast<float>(keys.positive("attention.scale", scale));
    config.attention_softcap = softcap(keys, "attn_logit_softcapping");
    config.final_softcap = softcap(keys, "final_logit_softcapping");
    // The rest follows from the tensors that the file has.
    config.tied_head = !has_tensor(keys.file, "output.weight");
    config.attention_bias = has_tensor(keys.file, "blk.0.attn_q.bias");
    config.output_bias = config.attention_bias && has_tensor(keys.file, "blk.0.attn_output.bias");
    config.mlp_bias = has_tensor(keys.file, "blk.0.ffn_gate.bias");
    return config;
}

// Returns the family that reads files of an architecture.
const Family &find_family(const GgufFile &file, const std::string &architecture) {
    std::string known;
    for (const Family *family : families()) {
        if (family->read_gguf == nullptr) {
            continue;
        }
        if (architecture == family->gguf) {
            return *family;
        }
        known += (known.empty() ? "" : ", ") + std::string(family->gguf);
    }
    unsupported(file, "general.architecture \"" + architecture + "\" is not supported (" + known +
                          " are)");
}

} // namespace

Config read_config(const GgufFile &file) {
    const kernels::FloatEnvironment environment; // for decimal numbers, as in config.json
    const std::string type = file.text("general.type").value_or("model");
    if (type != "model") {
        unsupported(file, "general.type \"" + type + "\" is not supported (model is)");
    }
    const std::string architecture = file.text("general.architecture").value_or("");
    const Family &family = find_family(file, architecture);
    const Keys keys{file, architecture};
    refuse_old_blocks(file);
    Config config = parse_decoder(keys, family);
    check_sizes(config, {file.names[0] + ": metadata " + architecture, "attention.head_count",
                         "attention.head_count_kv", "attention.key_length"});
    family.read_gguf(keys, config);
    refuse_unsupported(keys, config);
    read_token_ids(file, config);
    return config;
}

} // namespace stasis
