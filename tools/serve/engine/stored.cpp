// Data of sessions, and ids; see stored.h.
#include "tools/serve/engine/stored.h"

#include <algorithm>
#include <chrono>

#include "tools/serve/api/members.h"
#include "tools/serve/engine/prefixes.h"
#include "tools/serve/engine/served_model.h"

namespace serve {

std::string data_of(const stasis_session *session, const char *name) {
    size_t length = 0;
    stasis_error error{};
    stasis_status status = stasis_session_get_data(session, name, nullptr, 0, &length, &error);
    std::string bytes(length, '\0');
    if (status == STASIS_BUFFER_TOO_SMALL) {
        status =
            stasis_session_get_data(session, name, bytes.data(), bytes.size(), &length, &error);
    }
    if (status == STASIS_NOT_FOUND) {
        return "";
    }
    require(status, error);
    return bytes;
}

void set_data(stasis_session *session, const char *name, const std::string &bytes) {
    stasis_error error{};
    require(stasis_session_set_data(session, name, bytes.data(), bytes.size(), &error), error);
}

void clear_data(stasis_session *session, const char *name) {
    stasis_error error{};
    const stasis_status status = stasis_session_set_data(session, name, nullptr, 0, &error);
    if (status != STASIS_NOT_FOUND) {
        require(status, error);
    }
}

std::vector<std::string> lines_of(const std::string &text) {
    std::vector<std::string> lines;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find('\n', at), text.size());
        lines.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return lines;
}

void merge_data(const stasis_session *from, stasis_session *to) {
    for (const char *name : {kConversationData, kResponseData}) {
        const std::string bytes = data_of(from, name);
        if (!bytes.empty() && data_of(to, name).empty()) {
            set_data(to, name, bytes);
        }
    }
    std::string names = data_of(to, kNamesData);
    const std::vector<std::string> has = lines_of(names);
    for (const std::string &name : lines_of(data_of(from, kNamesData))) {
        if (std::find(has.begin(), has.end(), name) == has.end()) {
            names += name + "\n";
        }
    }
    set_data(to, kNamesData, names);
}

void check_data(stasis_session *session) {
    for (const char *name : {kResponseData, kNamesData}) {
        clear_data(session, name);
    }
    const std::string text = data_of(session, kConversationData);
    if (text.empty()) {
        return;
    }
    const api::Json conversation = api::parse_body(text);
    const auto bad = [] {
        throw api::Refused{400, "invalid_snapshot", "the file's conversation is none", ""};
    };
    if (!conversation.is_object() || !conversation.contains("messages") ||
        !conversation["messages"].is_array() || conversation["messages"].empty()) {
        bad();
    }
    for (const api::Json &message : conversation["messages"]) {
        const bool texts = message.is_object() && message.contains("role") &&
                           message["role"].is_string() &&
                           (!message.contains("content") || message["content"].is_string());
        if (!texts) {
            bad();
        }
    }
}

uint64_t domain_of(const std::string &tenant) {
    if (tenant == kOneTenant) {
        return STASIS_DOMAIN_COMMON;
    }
    const uint64_t domain = std::stoull(sha256(tenant).substr(0, 16), nullptr, 16);
    return domain == STASIS_DOMAIN_PRIVATE ? 1 : domain;
}

std::string id_in(const std::string &text, const std::string &prefix) {
    const std::string id = text.starts_with(prefix) ? text.substr(prefix.size()) : text;
    const bool hexadecimal = id.find_first_not_of("0123456789abcdef") == std::string::npos;
    const bool long_enough =
        id.size() == 2 * sizeof(stasis_digest) || id.size() == kRequestIdLength;
    return hexadecimal && long_enough ? id : "";
}

int64_t now() {
    return std::chrono::duration_cast<std::chrono::seconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

} // namespace serve
