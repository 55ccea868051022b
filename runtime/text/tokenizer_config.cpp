// Reads tokenizer_config.json. Unknown keys are ignored; known ones of the wrong type are errors.
#include "runtime/text/tokenizer_config.h"

#include <algorithm>
#include <filesystem>

#include "format/error.h"
#include "runtime/checkpoint/json_file.h"

namespace stasis {

namespace {

using Json = nlohmann::json;

constexpr size_t kConfigMax = 64 << 20; // Gemma's lists its whole vocabulary: 1 MB
constexpr size_t kTemplateMax = 1 << 20;

[[noreturn]] void corrupt(const std::string &path, const std::string &what) {
    fail(Status::corrupt, "%s: %s", path.c_str(), what.c_str());
}

// A special token's text is a string or an object with "content"; null and absence mean none.
std::string token_text(const Json &config, const char *key, const std::string &path) {
    const auto found = config.find(key);
    if (found == config.end() || found->is_null()) {
        return "";
    }
    if (found->is_string()) {
        return found->get<std::string>();
    }
    if (found->is_object() && found->contains("content") && found->at("content").is_string()) {
        return found->at("content").get<std::string>();
    }
    corrupt(path, std::string("'") + key + "' is neither a string nor has it a 'content'");
}

// One template, or a list of named ones, of which "default" is the one for plain chats.
std::string template_text(const Json &config, const std::string &path) {
    const auto found = config.find("chat_template");
    if (found == config.end() || found->is_null()) {
        return "";
    }
    if (found->is_string()) {
        return found->get<std::string>();
    }
    if (!found->is_array()) {
        corrupt(path, "'chat_template' is neither a string nor a list");
    }
    for (const Json &entry : *found) {
        if (entry.is_object() && entry.value("name", Json()) == Json("default") &&
            entry.contains("template") && entry.at("template").is_string()) {
            return entry.at("template").get<std::string>();
        }
    }
    return "";
}

std::vector<AddedToken> added_tokens(const Json &config, const std::string &path) {
    std::vector<AddedToken> added;
    const auto found = config.find("added_tokens_decoder");
    if (found == config.end() || found->is_null()) {
        return added;
    }
    if (!found->is_object()) {
        corrupt(path, "'added_tokens_decoder' is not an object");
    }
    for (const auto &[key, entry] : found->items()) {
        const bool number = !key.empty() && key.size() <= 9 &&
                            key.find_first_not_of("0123456789") == std::string::npos;
        if (!number || !entry.is_object() || !entry.contains("content") ||
            !entry.at("content").is_string()) {
            corrupt(path, "'added_tokens_decoder' has the entry '" + key.substr(0, 40) +
                              "', which is no token id with a 'content'");
        }
        const Json special = entry.value("special", Json(false));
        added.push_back({static_cast<uint32_t>(std::stoul(key)),
                         entry.at("content").get<std::string>(),
                         special.is_boolean() && special.get<bool>()});
    }
    std::sort(added.begin(), added.end(),
              [](const AddedToken &a, const AddedToken &b) { return a.token < b.token; });
    return added;
}

} // namespace

TokenizerConfig read_tokenizer_config(const std::string &directory) {
    TokenizerConfig out;
    const std::string path = directory + "/tokenizer_config.json";
    if (std::filesystem::exists(path)) {
        const Json config = parse_json(read_text(path, kConfigMax), path);
        out.bos_text = token_text(config, "bos_token", path);
        out.eos_text = token_text(config, "eos_token", path);
        out.chat_template = template_text(config, path);
        out.added = added_tokens(config, path);
    }
    const std::string jinja = directory + "/chat_template.jinja";
    if (std::filesystem::exists(jinja)) {
        out.chat_template = read_text(jinja, kTemplateMax);
    }
    return out;
}

} // namespace stasis
