// Reads and writes how texts become vectors; see embedding_rules.h. Files: sentence-transformers,
// util/file_io.py, models/Pooling.py and SentenceTransformer.py (modules.json, PATH/config.json of
// the pooling module, config_sentence_transformers.json, sentence_bert_config.json). The key of
// GGUF files: llama.cpp's gguf-py/gguf/constants.py (PoolingType).
#include "runtime/model/embedding_rules.h"

#include <algorithm>

#include "format/state/error.h"
#include "runtime/model/config_fields.h"
#include "runtime/model/gguf/writer.h"
#include "runtime/model/json_file.h"

namespace stasis {

namespace {

constexpr size_t kFileMax = 1U << 20;
constexpr size_t kDenseMax = 8; // a list may name one layer again and again
constexpr char kPoolingKey[] = ".pooling_type";

struct PoolingName {
    Pooling pooling;
    const char *mode, *flag; // in newer files, and in older ones
    uint64_t gguf;
};
constexpr PoolingName kNames[] = {{Pooling::last, "lasttoken", "pooling_mode_lasttoken", 3},
                                  {Pooling::mean, "mean", "pooling_mode_mean_tokens", 1}};

[[noreturn]] void refuse(const std::string &file, const std::string &what) {
    fail(Status::unsupported, "%s: %.200s is not supported", file.c_str(), what.c_str());
}

// Returns a JSON object of a file; an empty one if the file does not exist.
Json read_object(const ModelFolder &folder, const std::string &name) {
    return folder.has(name) ? parse_json(folder.text(name, kFileMax), folder.shown(name))
                            : Json{Json::Object()};
}

std::string text_of(const Json &json, const char *key) {
    const Json *found = json.find(key);
    return found != nullptr && found->text() != nullptr ? *found->text() : "";
}

// Sets the pooling, of which a file names one mode, or turns on one flag.
void read_pooling(const ModelFolder &folder, const std::string &file, EmbeddingRules &rules) {
    const std::string path = folder.shown(file);
    const Json config = read_object(folder, file);
    std::vector<std::string> modes;
    if (const Json *mode = config.find_value("pooling_mode")) {
        modes.push_back(mode->text() != nullptr ? *mode->text() : shown(*mode));
    } else {
        for (const Json::Member &member : *config.object()) {
            if (member.key.starts_with("pooling_mode_") && member.value.boolean() != nullptr &&
                *member.value.boolean()) {
                modes.push_back(member.key);
            }
        }
    }
    for (const PoolingName &name : kNames) {
        if (modes.size() == 1 && (modes[0] == name.mode || modes[0] == name.flag)) {
            rules.pooling = name.pooling;
        }
    }
    if (rules.pooling == Pooling::unknown) {
        std::string given;
        for (const std::string &mode : modes) {
            given += (given.empty() ? "" : " and ") + mode;
        }
        refuse(path, given.empty() ? "no pooling" : given);
    }
    const Fields fields{config, path + ": "};
    if (rules.pooling == Pooling::mean && !fields.flag("include_prompt", true)) {
        refuse(path, "include_prompt false");
    }
}

// What is done with hidden states, in order: the model itself, pooling, any number of dense layers,
// and normalising or nothing.
enum class Step : uint8_t { transformer, pooling, dense, normalise };

// Returns the step that a module is, behind another. Throws Error(unsupported).
Step step_of(const std::string &path, size_t index, const std::string &type, Step before) {
    const std::string name = type.substr(type.rfind('.') + 1);
    if (index == 0 && name == "Transformer") {
        return Step::transformer;
    }
    if (index == 1 && name == "Pooling") {
        return Step::pooling;
    }
    if (index > 1 && name == "Dense" && before != Step::normalise) {
        return Step::dense;
    }
    if (index > 1 && name == "Normalize" && before != Step::normalise) {
        return Step::normalise;
    }
    refuse(path, "module " + std::to_string(index) + " of type \"" + type + "\"");
}

void read_modules(const ModelFolder &folder, uint32_t hidden, EmbeddingRules &rules) {
    const std::string path = folder.shown(kModulesFile);
    // The file is a list, and the reader takes objects.
    const Json root =
        parse_json("{\"modules\": " + folder.text(kModulesFile, kFileMax) + "}", path);
    const Json::Array *modules = root.find("modules")->array();
    if (modules == nullptr || root.object()->size() != 1) {
        fail(Status::corrupt, "%s: expected a list of modules", path.c_str());
    }
    Step step = Step::transformer;
    for (size_t i = 0; i < modules->size(); ++i) {
        const Json &module = (*modules)[i];
        const std::string place = text_of(module, "path");
        step = step_of(path, i, text_of(module, "type"), step);
        if (step == Step::transformer && !place.empty()) {
            refuse(path, "a model in \"" + place + "\"");
        }
        if (place.find("..") != std::string::npos) {
            refuse(path, "a module in \"" + place + "\"");
        }
        if (step == Step::pooling) {
            read_pooling(folder, place + "/config.json", rules);
        } else if (step == Step::dense) {
            if (rules.dense.size() == kDenseMax) {
                refuse(path, "more than " + std::to_string(kDenseMax) + " dense layers");
            }
            rules.dense.push_back(read_embedding_dense(folder, place, rules.dimension(hidden)));
        }
    }
    if (modules->size() < 2) {
        refuse(path, "a list without Pooling");
    }
    rules.normalised = step == Step::normalise;
}

void read_prompts(const ModelFolder &folder, const std::string &name, EmbeddingRules &rules) {
    const std::string path = folder.shown(name);
    const Json config = read_object(folder, name);
    if (const Json *prompts = config.find_value("prompts")) {
        if (prompts->object() == nullptr) {
            fail(Status::corrupt, "%s: prompts: expected an object", path.c_str());
        }
        for (const Json::Member &member : *prompts->object()) {
            if (member.value.text() == nullptr) {
                fail(Status::corrupt, "%s: prompts: expected texts", path.c_str());
            }
            rules.prompts.emplace_back(member.key, *member.value.text());
        }
    }
    rules.default_prompt = text_of(config, "default_prompt_name");
    const auto named = [&](const auto &prompt) { return prompt.first == rules.default_prompt; };
    if (!rules.default_prompt.empty() &&
        std::none_of(rules.prompts.begin(), rules.prompts.end(), named)) {
        fail(Status::corrupt, "%s: default_prompt_name \"%.60s\" is not one of the prompts",
             path.c_str(), rules.default_prompt.c_str());
    }
}

void read_limits(const ModelFolder &folder, const std::string &name, EmbeddingRules &rules) {
    const std::string path = folder.shown(name);
    const Json config = read_object(folder, name);
    const Fields fields{config, path + ": "};
    rules.tokens_max = fields.count("max_seq_length", kContextMax, 0, 0);
    if (fields.flag("do_lower_case", false)) {
        refuse(path, "do_lower_case");
    }
}

// Runs `read`, and stores the message if the rules cannot be followed.
template <typename Read> EmbeddingRules checked(const Read &read) {
    EmbeddingRules rules;
    try {
        read(rules);
    } catch (const Error &error) {
        if (error.status() != Status::unsupported && error.status() != Status::corrupt) {
            throw;
        }
        rules = {};
        rules.refusal = error.what();
    }
    return rules;
}

} // namespace

EmbeddingRules read_embedding_rules(const ModelFolder &folder, uint32_t hidden) {
    return checked([&](EmbeddingRules &rules) {
        if (folder.has(kModulesFile)) {
            read_modules(folder, hidden, rules);
            read_prompts(folder, "config_sentence_transformers.json", rules);
            read_limits(folder, "sentence_bert_config.json", rules);
        }
    });
}

EmbeddingRules read_embedding_rules(const GgufFile &file, uint32_t hidden) {
    return checked([&](EmbeddingRules &rules) {
        const std::string architecture = file.text("general.architecture").value_or("");
        const uint64_t type = file.integer(architecture + kPoolingKey).value_or(0);
        for (const PoolingName &name : kNames) {
            if (type == name.gguf) {
                rules.pooling = name.pooling;
            }
        }
        if (type != 0 && rules.pooling == Pooling::unknown) {
            refuse(file.names[0],
                   "metadata " + architecture + kPoolingKey + " " + std::to_string(type));
        }
        for (const char *name : kGgufDense) {
            if (file.tensors.count(std::string(name) + ".weight") != 0) {
                rules.dense.push_back(read_embedding_dense(file, name, rules.dimension(hidden)));
            }
        }
    });
}

const char *name_of(Pooling pooling) {
    return pooling == Pooling::last ? "last" : pooling == Pooling::mean ? "mean" : "unknown";
}

void describe_embedding(const EmbeddingRules &rules, const std::string &architecture,
                        GgufMetadata &metadata) {
    if (!rules.refusal.empty()) {
        fail(Status::unsupported, "%s", rules.refusal.c_str());
    }
    for (size_t i = 0; i < rules.dense.size(); ++i) {
        const EmbeddingDense &dense = rules.dense[i];
        if (i >= std::size(kGgufDense) || !dense.bias.empty()) {
            refuse(kModulesFile, "a dense layer with biases, or a third one, in a GGUF file");
        }
        const std::string key = architecture + "." + kGgufDense[i] + "_feat_";
        metadata.integer(key + "in", dense.inputs);
        metadata.integer(key + "out", dense.outputs);
    }
    for (const PoolingName &name : kNames) {
        if (name.pooling == rules.pooling) {
            metadata.integer(architecture + kPoolingKey, static_cast<uint32_t>(name.gguf));
            if (!rules.normalised) {
                refuse(kModulesFile, "pooling without Normalize in a GGUF file");
            }
        }
    }
}

} // namespace stasis
