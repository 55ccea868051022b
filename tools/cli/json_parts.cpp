// Splitting JSON texts; see json_parts.h.
#include "tools/cli/json_parts.h"

namespace command {

void for_each_part(std::string_view json, const Part &part) {
    size_t depth = 0, begin = 1, colon = 0; // of the current part; a colon of 0: it has none
    bool quoted = false;
    for (size_t i = 0; i < json.size(); ++i) {
        const char c = json[i];
        if (quoted) {
            i += c == '\\' ? 1 : 0;
            quoted = c != '"';
            continue;
        }
        quoted = c == '"';
        depth += c == '{' || c == '[' ? 1 : 0;
        colon = c == ':' && depth == 1 ? i : colon;
        depth -= c == '}' || c == ']' ? 1 : 0;
        if (depth == 0 || (c == ',' && depth == 1)) {
            if (i > begin) {
                const size_t value = colon == 0 ? begin : colon + 1;
                part(colon == 0 ? "" : json.substr(begin + 1, colon - begin - 2),
                     json.substr(value, i - value));
            }
            begin = i + 1;
            colon = 0;
        }
    }
}

std::string_view member(std::string_view object, std::string_view key) {
    std::string_view found;
    for_each_part(object, [&](std::string_view name, std::string_view value) {
        found = name == key ? value : found;
    });
    return found;
}

} // namespace command
