// Data of sessions, and ids; see stored.h.
#include "tools/serve/engine/stored.h"

#include <chrono>

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
