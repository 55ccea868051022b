// Reads tokenizer_config.json. Other keys are ignored; keys in use with the wrong type are errors.
#include "runtime/text/tokenizer_config.h"

#include <algorithm>

#include "format/state/error.h"
#include "runtime/model/json_file.h"

namespace stasis {

namespace {

constexpr size_t kConfigMax = 64 << 20; // Gemma's lists its whole vocabulary: 1 MB
constexpr size_t kTemplateMax = 1 << 20;

[[noreturn]] void corrupt(const std::string &path, const std::string &what) {
    fail(Status::corrupt, "%s: %s", path.c_str(), what.c_str());
}

// Returns the text of a member; null if it is absent or of another type.
const std::string *text_of(const Json &json, const char *key) {
    const Json *found = json.find(key);
    return found != nullptr ? found->text() : nullptr;
}

// Returns a special token's text, which is a string or an object with "content"; null and absence
// mean none.
std::string token_text(const Json &config, const char *key, const std::string &path) {
    const Json *found = config.find_value(key);
    if (found == nullptr) {
        return "";
    }
    const std::string *text = found->text() != nullptr ? found->text() : text_of(*found, "content");
    if (text == nullptr) {
        corrupt(path, std::string("'") + key + "' is neither a string nor has it a 'content'");
    }
    return *text;
}

// Returns one template, or of a list of named ones the one named "default", which is for plain
// chats.
std::string template_text(const Json &config, const std::string &path) {
    const Json *found = config.find_value("chat_template");
    if (found == nullptr) {
        return "";
    }
    if (found->text() != nullptr) {
        return *found->text();
    }
    if (found->array() == nullptr) {
        corrupt(path, "'chat_template' is neither a string nor a list");
    }
    for (const Json &entry : *found->array()) {
        const std::string *name = text_of(entry, "name"), *text = text_of(entry, "template");
        if (name != nullptr && *name == "default" && text != nullptr) {
            return *text;
        }
    }
    return "";
}

// Returns a flag; another type counts as absent.
bool flag_of(const Json &config, const char *key, bool otherwise) {
    const Json *found = config.find(key);
    return found != nullptr && found->boolean() != nullptr ? *found->boolean() : otherwise;
}

std::vector<AddedToken> added_tokens(const Json &config, const std::string &path) {
    std::vector<AddedToken> added;
    const Json *found = config.find_value("added_tokens_decoder");
    if (found == nullptr) {
        return added;
    }
    if (found->object() == nullptr) {
        corrupt(path, "'added_tokens_decoder' is not an object");
    }
    for (const auto &[key, entry] : *found->object()) {
        const bool number = !key.empty() && key.size() <= 9 &&
                            key.find_first_not_of("0123456789") == std::string::npos;
        const std::string *content = text_of(entry, "content");
        if (!number || content == nullptr) {
            corrupt(path, "'added_tokens_decoder' has the entry '" + key.substr(0, 40) +
                              "', which is no token id with a 'content'");
        }
        const Json *special = entry.find("special");
        const bool *is_special = special != nullptr ? special->boolean() : nullptr;
        added.push_back({static_cast<uint32_t>(std::stoul(key)), *content,
                         is_special != nullptr && *is_special});
    }
    std::sort(added.begin(), added.end(),
              [](const AddedToken &a, const AddedToken &b) { return a.token < b.token; });
    return added;
}

} // namespace

TokenizerConfig read_tokenizer_config(const ModelFolder &folder) {
    TokenizerConfig out;
    constexpr const char *kConfig = "tokenizer_config.json", *kJinja = "chat_template.jinja";
    if (folder.has(kConfig)) {
        const std::string path = folder.shown(kConfig);
        const Json config = parse_json(folder.text(kConfig, kConfigMax), path);
        out.bos_text = token_text(config, "bos_token", path);
        out.eos_text = token_text(config, "eos_token", path);
        out.chat_template = template_text(config, path);
        out.added = added_tokens(config, path);
        out.add_bos = flag_of(config, "add_bos_token", out.add_bos);
        out.add_eos = flag_of(config, "add_eos_token", out.add_eos);
    }
    if (folder.has(kJinja)) {
        out.chat_template = folder.text(kJinja, kTemplateMax);
    }
    return out;
}

} // namespace stasis
