// Reads a config.json: chooses the family, and checks what must hold for all of them; see config.h.
#include "runtime/model/config.h"

#include <algorithm>
#include <span>

#include "format/state/error.h"
#include "runtime/kernels/environment.h"
#include "runtime/model/activation_names.h"
#include "runtime/model/family/family.h"
#include "runtime/model/json_file.h"

namespace stasis {

namespace {

constexpr size_t kFileLimitBytes = 16U << 20;
constexpr char kConfig[] = "config.json";

// Returns the family of a config.json. Published files name the architecture twice, and both names
// must match: a sequence classifier, for example, has the model_type of the language model it was
// made from.
const Family &find_family(const Fields &fields) {
    const std::string type = fields.text("model_type", "");
    std::string architecture;
    if (const Json *found = fields.object.find_value("architectures")) {
        const Json::Array *names = found->array();
        if (names == nullptr || names->size() != 1 || names->front().text() == nullptr) {
            fields.refuse("architectures", "an array with one name");
        }
        architecture = *names->front().text();
    }
    std::string known;
    for (const Family *family : families()) {
        for (const Family::Published &name : family->published) {
            if (name.model_type == nullptr) {
                continue;
            }
            if (type == name.model_type &&
                (architecture.empty() || architecture == name.architecture)) {
                return *family;
            }
            known += (known.empty() ? "" : ", ") + std::string(name.architecture);
        }
    }
    fail(Status::unsupported,
         "%s: architecture \"%s\" with model_type \"%s\" is not supported (%s are)", kConfig,
         architecture.c_str(), type.c_str(), known.c_str());
}

// Returns the ids of a field that holds one id or a list of ids.
std::vector<uint32_t> read_ids(const Fields &fields, const char *key, uint32_t vocabulary) {
    const Json *value = fields.object.find(key);
    const std::span<const Json> given =
        value->array() != nullptr ? std::span(*value->array()) : std::span(value, 1);
    std::vector<uint32_t> ids;
    for (const Json &each : given) {
        const uint64_t *id = each.count();
        if (id == nullptr || *id >= vocabulary) {
            fields.refuse(key,
                          ("token ids below vocab_size, " + std::to_string(vocabulary)).c_str());
        }
        if (std::find(ids.begin(), ids.end(), *id) == ids.end()) {
            ids.push_back(static_cast<uint32_t>(*id));
        }
    }
    return ids;
}

// Returns the ids of the first of `files` that has `key`; the fallback if none has it.
std::vector<uint32_t> find_ids(const std::vector<Fields> &files, const char *key,
                               uint32_t vocabulary, uint32_t fallback) {
    bool named = false;
    for (const Fields &fields : files) {
        if (fields.has(key)) {
            return read_ids(fields, key, vocabulary);
        }
        named = named || fields.object.find(key) != nullptr; // null: explicitly none
    }
    return named || fallback >= vocabulary ? std::vector<uint32_t>{}
                                           : std::vector<uint32_t>{fallback};
}

} // namespace

void check_sizes(const Config &config, const SizeNames &names) {
    const char *file = names.file.c_str();
    if (config.heads % config.kv_heads != 0) {
        fail(Status::corrupt, "%s: %s (%u) is not a multiple of %s (%u)", file, names.heads,
             config.heads, names.kv_heads, config.kv_heads);
    }
    if (config.head_dim % 2 != 0) {
        fail(Status::corrupt, "%s: %s (%u) is odd, and rotary embedding turns pairs", file,
             names.head_dim, config.head_dim);
    }
    if (uint64_t{config.heads} * config.head_dim > kWidthMax) {
        fail(Status::corrupt, "%s: %s (%u) times %s (%u) exceeds %u", file, names.heads,
             config.heads, names.head_dim, config.head_dim, kWidthMax);
    }
    if (config.head_dim > kHeadDimMax) {
        fail(Status::unsupported, "%s: %s (%u) exceeds %u", file, names.head_dim, config.head_dim,
             kHeadDimMax);
    }
}

Activation parse_activation(const Fields &fields, const char *key, const char *fallback) {
    const std::string name = fields.text(key, fallback);
    std::string supported;
    for (const ActivationNames &names : kActivationNames) {
        for (const char *called : names.config_json) {
            if (called != nullptr && name == called) {
                return names.activation;
            }
        }
        supported += supported.empty() ? "" : " and ";
        supported += names.config_json[0];
    }
    fail(Status::unsupported, "%s%s: activation \"%s\" is not supported (%s are)",
         fields.name.c_str(), key, name.c_str(), supported.c_str());
}

void refuse_unsupported(const Fields &fields, const char *quantised, bool bidirectional) {
    if (fields.has("quantization_config")) {
        const std::string method = fields.child("quantization_config").text("quant_method", "");
        if (quantised == nullptr || method != quantised) {
            fail(Status::unsupported,
                 "%squantization_config: quantised checkpoints (\"%s\") are not supported",
                 fields.name.c_str(), method.c_str());
        }
    }
    static constexpr char kBidirectional[] = "use_bidirectional_attention";
    for (const char *key : {kBidirectional, "alibi", "use_mrope"}) {
        const Json *value = fields.object.find_value(key);
        const bool named = key == kBidirectional && value != nullptr && value->text() != nullptr;
        if (named && *value->text() == "vision") {
            continue; // Gemma 4 says of images alone that they see what follows
        }
        if (!named && key == kBidirectional && bidirectional) {
            continue;
        }
        if (named || fields.flag(key, false)) {
            fail(Status::unsupported, "%s%s is not supported", fields.name.c_str(), key);
        }
    }
}

Config parse_config(const std::string &config_text, const std::string &generation_text) {
    // Reading decimal numbers rounds them, so the host's rounding mode must not matter.
    const kernels::FloatEnvironment environment;
    const Json object = parse_json(config_text, kConfig);
    const Fields fields{object, std::string(kConfig) + ": "};
    const Json generation =
        generation_text.empty() ? Json() : parse_json(generation_text, kGenerationConfig);
    const Family &family = find_family(fields);
    refuse_unsupported(fields, family.quantised, family.bidirectional);
    Config config = family.read(fields);
    check_sizes(config, {kConfig, "num_attention_heads", "num_key_value_heads", "head_dim"});

    std::vector<Fields> files{{generation, std::string(kGenerationConfig) + ": "}, fields};
    if (fields.has("text_config")) {
        files.push_back(fields.child("text_config"));
    }
    config.bos = find_ids(files, "bos_token_id", config.vocabulary, family.bos);
    config.end_tokens = find_ids(files, "eos_token_id", config.vocabulary, family.eos);
    if (config.bos.size() > 1) {
        fail(Status::corrupt, "bos_token_id: expected at most one id, found %zu",
             config.bos.size());
    }
    return config;
}

std::string read_generation_config(const ModelFolder &folder) {
    try {
        return folder.text(kGenerationConfig, kFileLimitBytes);
    } catch (const Error &error) {
        if (error.status() != Status::not_found) {
            throw;
        }
    }
    return "";
}

Config read_config(const ModelFolder &folder) {
    const std::string config = folder.text(kConfig, kFileLimitBytes);
    return parse_config(config, read_generation_config(folder));
}

} // namespace stasis
