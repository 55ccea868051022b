// Reads tokenizer_config.json. Unknown keys are ignored; known ones of the wrong type are errors.
#include "runtime/tokenizer_config.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "format/error.h"

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

std::string read_small_file(const std::string &path, size_t size_max) {
    std::error_code failure;
    const uintmax_t size = std::filesystem::file_size(path, failure);
    if (failure) {
        fail(failure == std::errc::no_such_file_or_directory ? Status::not_found : Status::io,
             "%s: %s", path.c_str(), failure.message().c_str());
    }
    if (size > size_max) {
        fail(Status::corrupt, "%s: %ju bytes long, at most %zu are read", path.c_str(), size,
             size_max);
    }
    std::ifstream file(path, std::ios::binary);
    std::string bytes(static_cast<size_t>(size), '\0');
    if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) {
        fail(Status::io, "%s: cannot be read: %s", path.c_str(), std::strerror(errno));
    }
    return bytes;
}

TokenizerConfig read_tokenizer_config(const std::string &directory) {
    TokenizerConfig out;
    const std::string path = directory + "/tokenizer_config.json";
    if (std::filesystem::exists(path)) {
        const Json config = Json::parse(read_small_file(path, kConfigMax), nullptr, false);
        if (!config.is_object()) {
            corrupt(path, "not a JSON object");
        }
        out.bos_text = token_text(config, "bos_token", path);
        out.eos_text = token_text(config, "eos_token", path);
        out.chat_template = template_text(config, path);
        out.added = added_tokens(config, path);
    }
    const std::string jinja = directory + "/chat_template.jinja";
    if (std::filesystem::exists(jinja)) {
        out.chat_template = read_small_file(jinja, kTemplateMax);
    }
    return out;
}

} // namespace stasis
