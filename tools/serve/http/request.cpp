// Looks for headers of a request; see server.h.
#include "tools/serve/http/server.h"

namespace serve::http {

std::string_view Request::header(std::string_view name) const {
    for (const auto &[known, value] : headers) {
        if (known == name) {
            return value;
        }
    }
    return {};
}

} // namespace serve::http
