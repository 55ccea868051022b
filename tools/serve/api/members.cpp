// Members of a body's objects.
#include "tools/serve/api/members.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace serve::api {

namespace {

constexpr size_t kDepthMax = 100;
// Members of an object are looked up one after the other while it is read: their squares count.
constexpr uint64_t kLooksMax = uint64_t{1} << 27;

[[noreturn]] void refuse_type(const std::string &place, const char *wanted) {
    refuse(place, "'" + place + "' must be " + wanted, "invalid_type");
}

// Throws Refused: the text nests too deeply, or has objects of too many members. It may be no JSON.
void check_shape(std::string_view text) {
    std::vector<uint64_t> members; // of the objects and lists that are open
    uint64_t looks = 0;
    bool quoted = false;
    for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (quoted) {
            i += c == '\\' ? 1 : 0;
            quoted = c != '"';
        } else if (c == '"') {
            quoted = true;
        } else if (c == '{' || c == '[') {
            members.push_back(0);
            if (members.size() > kDepthMax) {
                refuse("", "the body nests deeper than " + std::to_string(kDepthMax) + " levels",
                       "invalid_json");
            }
        } else if ((c == '}' || c == ']') && !members.empty()) {
            members.pop_back();
        } else if (c == ':' && !members.empty()) {
            looks += members.back()++;
            if (looks > kLooksMax) {
                refuse("", "the body has objects of too many members", "invalid_json");
            }
        }
    }
}

} // namespace

void refuse(const std::string &parameter, const std::string &message, const char *code) {
    throw Refused{400, code, message, parameter};
}

Json parse_body(std::string_view body) {
    check_shape(body);
    Json parsed;
    try {
        parsed = Json::parse(body);
    } catch (const Json::exception &error) {
        refuse("", std::string("the body is no JSON: ") + error.what(), "invalid_json");
    }
    if (!parsed.is_object()) {
        refuse("", "the body must be a JSON object", "invalid_json");
    }
    return parsed;
}

std::vector<stasis_token> read_tokens(const Json &list, const std::string &place) {
    if (!list.is_array() || list.empty()) {
        refuse(place, "'" + place + "' must be text or tokens, and not empty", "invalid_type");
    }
    std::vector<stasis_token> tokens;
    tokens.reserve(list.size());
    for (const Json &token : list) {
        if (!token.is_number_unsigned() || token.get<uint64_t>() > INT32_MAX) {
            refuse(place, "'" + place + "' has " + token.dump() + ", which is no token");
        }
        tokens.push_back(token.get<stasis_token>());
    }
    return tokens;
}

Members::Members(const Json &object, std::string place)
    : object_(&object), place_(std::move(place)) {
    if (!object.is_object()) {
        refuse_type(place_, "an object");
    }
}

std::string Members::place_of(const std::string &name) const {
    return place_.empty() ? name : place_ + "." + name;
}

const Json *Members::find(const char *name) {
    known_.emplace_back(name);
    const auto found = object_->find(name);
    return found == object_->end() || found->is_null() ? nullptr : &*found;
}

const Json *Members::list(const char *name) {
    const Json *found = find(name);
    if (found != nullptr && !found->is_array()) {
        refuse_type(place_of(name), "a list");
    }
    return found;
}

std::optional<std::string> Members::text(const char *name) {
    const Json *found = find(name);
    if (found == nullptr) {
        return {};
    }
    if (!found->is_string()) {
        refuse_type(place_of(name), "a string");
    }
    return found->get<std::string>();
}

std::optional<bool> Members::flag(const char *name) {
    const Json *found = find(name);
    if (found == nullptr) {
        return {};
    }
    if (!found->is_boolean()) {
        refuse_type(place_of(name), "true or false");
    }
    return found->get<bool>();
}

std::optional<double> Members::number(const char *name, double least, double most) {
    const Json *found = find(name);
    if (found == nullptr) {
        return {};
    }
    if (!found->is_number()) {
        refuse_type(place_of(name), "a number");
    }
    const double value = found->get<double>();
    if (!(value >= least && value <= most)) {
        refuse(place_of(name), "'" + place_of(name) + "' must be a number from " +
                                   Json(least).dump() + " to " + Json(most).dump());
    }
    return value;
}

std::optional<int64_t> Members::integer(const char *name, int64_t least, int64_t most) {
    const Json *found = find(name);
    if (found == nullptr) {
        return {};
    }
    if (!found->is_number()) {
        refuse_type(place_of(name), "an integer");
    }
    // Some clients write 16.0; 2^53 is where a double stops naming one integer.
    const bool whole =
        found->is_number_integer() || (std::fabs(found->get<double>()) <= 0x1p53 &&
                                       std::floor(found->get<double>()) == found->get<double>());
    const bool huge = found->is_number_unsigned() &&
                      found->get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
    if (!whole || huge || found->get<int64_t>() < least || found->get<int64_t>() > most) {
        refuse(place_of(name), "'" + place_of(name) + "' must be an integer from " +
                                   std::to_string(least) + " to " + std::to_string(most));
    }
    return found->get<int64_t>();
}

const Json &Members::needed(const char *name) {
    const Json *found = find(name);
    if (found == nullptr) {
        refuse(place_of(name), "'" + place_of(name) + "' is missing", "missing_required_parameter");
    }
    return *found;
}

const Json &Members::needed_list(const char *name) {
    needed(name);
    return *list(name);
}

std::string Members::needed_text(const char *name) {
    needed(name);
    return *text(name);
}

void Members::unsupported(std::initializer_list<const char *> names) {
    for (const char *name : names) {
        if (find(name) != nullptr) {
            refuse(place_of(name), "'" + place_of(name) + "' is not supported",
                   "unsupported_parameter");
        }
    }
}

void Members::ignore(std::initializer_list<const char *> names) {
    known_.insert(known_.end(), names.begin(), names.end());
}

void Members::refuse_others() const {
    for (const auto &[name, value] : object_->items()) {
        if (!value.is_null() && std::find(known_.begin(), known_.end(), name) == known_.end()) {
            refuse(place_of(name), "unknown member '" + place_of(name) + "'", "unknown_parameter");
        }
    }
}

} // namespace serve::api
