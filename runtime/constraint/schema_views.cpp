// References, allOf, anyOf and oneOf; see schema_views.h.
#include "runtime/constraint/schema_views.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "format/state/error.h"
#include "runtime/constraint/hex.h"

namespace stasis::constraint {

namespace {

using JsonKind = JsonValue::Kind;

constexpr size_t kAlternativesMax = 256;
// Schemas taken up, values compared and pairs of branches, of one constraint.
constexpr size_t kStepsMax = size_t{1} << 18;

// Keywords that are read, and those that say nothing about which values fit.
constexpr const char *kKnown[] = {"$comment",
                                  "$defs",
                                  "$id",
                                  "$ref",
                                  "$schema",
                                  "additionalProperties",
                                  "allOf",
                                  "anyOf",
                                  "const",
                                  "default",
                                  "definitions",
                                  "deprecated",
                                  "description",
                                  "discriminator",
                                  "enum",
                                  "examples",
                                  "exclusiveMaximum",
                                  "exclusiveMinimum",
                                  "format",
                                  "items",
                                  "maxItems",
                                  "maxLength",
                                  "maxProperties",
                                  "maximum",
                                  "minItems",
                                  "minLength",
                                  "minProperties",
                                  "minimum",
                                  "oneOf",
                                  "pattern",
                                  "prefixItems",
                                  "properties",
                                  "readOnly",
                                  "required",
                                  "title",
                                  "type",
                                  "uniqueItems",
                                  "writeOnly"};

constexpr struct {
    const char *name;
    uint32_t type;
} kTypes[] = {{"null", type_null},       {"boolean", type_boolean},
              {"integer", type_integer}, {"number", type_integer | type_number},
              {"string", type_string},   {"array", type_array},
              {"object", type_object}};

// Returns a part of a JSON pointer with ~0, ~1 and % undone.
std::string pointer_part(std::string_view spelled) {
    std::string part;
    for (size_t i = 0; i < spelled.size(); ++i) {
        if (spelled[i] == '~' && i + 1 < spelled.size() &&
            (spelled[i + 1] == '0' || spelled[i + 1] == '1')) {
            part += spelled[++i] == '0' ? '~' : '/';
        } else if (spelled[i] == '%' && i + 2 < spelled.size() && hex_digit(spelled[i + 1]) < 16 &&
                   hex_digit(spelled[i + 2]) < 16) {
            part += static_cast<char>(hex_digit(spelled[i + 1]) * 16 + hex_digit(spelled[i + 2]));
            i += 2;
        } else {
            part += spelled[i];
        }
    }
    return part;
}

void add_once(Together &view, const JsonValue &schema) {
    if (std::find(view.begin(), view.end(), &schema) == view.end()) {
        view.push_back(&schema);
    }
}

} // namespace

void bad_schema(const JsonValue &at, const char *keyword, const char *what) {
    fail(Status::invalid_argument, "the schema's %s at byte %zu %s", keyword, at.offset, what);
}

void refuse_keyword(const JsonValue &at, const char *keyword, const char *what) {
    fail(Status::unsupported, "the schema at byte %zu has %s%s, which constraints do not support",
         at.offset, keyword, what);
}

const JsonValue *find_of(const JsonValue &schema, const char *keyword, JsonKind kind) {
    static constexpr const char *kNames[] = {"is not null",     "is not true or false",
                                             "is not a number", "is not a string",
                                             "is not an array", "is not an object"};
    const JsonValue *found = schema.find(keyword);
    if (found != nullptr && !found->is(kind)) {
        bad_schema(*found, keyword, kNames[static_cast<size_t>(kind)]);
    }
    return found;
}

uint32_t count_of(const JsonValue &value, const char *keyword) {
    const Decimal number = value.is(JsonKind::number) ? decimal(value) : Decimal{true, "1", ""};
    if ((number.negative && !number.zero()) || !number.fraction.empty()) {
        bad_schema(value, keyword, "is not a count");
    }
    if (number.whole.size() > 9) {
        refuse_keyword(value, keyword, " of more than 999999999");
    }
    return number.whole.empty() ? 0 : static_cast<uint32_t>(std::stoul(number.whole));
}

uint32_t type_named(const JsonValue &name) {
    for (const auto &each : kTypes) {
        if (name.is(JsonKind::string) && name.text == each.name) {
            return each.type;
        }
    }
    bad_schema(name, "type", "is none of null, boolean, integer, number, string, array, object");
}

uint32_t type_of(const JsonValue &value) {
    switch (value.kind) {
    case JsonKind::null:
        return type_null;
    case JsonKind::boolean:
        return type_boolean;
    case JsonKind::number:
        return decimal(value).fraction.empty() ? type_integer : type_number;
    case JsonKind::string:
        return type_string;
    case JsonKind::array:
        return type_array;
    case JsonKind::object:
        return type_object;
    }
    return 0;
}

void SchemaViews::check_keywords(const JsonValue &schema) {
    if (!checked_.insert(&schema).second) {
        return;
    }
    for (const std::string &key : schema.keys) {
        const bool known = std::any_of(std::begin(kKnown), std::end(kKnown),
                                       [&](const char *each) { return key == each; });
        if (!known && key.substr(0, 2) != "x-") {
            refuse_keyword(schema, ("\"" + key + "\"").c_str(), "");
        }
        if (key == "$id" && &schema != &root_) {
            refuse_keyword(schema, "\"$id\"", " inside");
        }
    }
    const JsonValue *unique = find_of(schema, "uniqueItems", JsonKind::boolean);
    if (unique != nullptr && unique->boolean) {
        refuse_keyword(schema, "\"uniqueItems\"", "");
    }
}

void SchemaViews::spend(size_t steps) {
    steps_ += steps;
    if (steps_ > kStepsMax) {
        fail(Status::unsupported,
             "the schema is too large: its schemas combine in more than %zu ways", kStepsMax);
    }
}

const std::string &SchemaViews::text_of(const JsonValue &value) {
    const auto [found, added] = texts_.try_emplace(&value);
    if (added) {
        found->second = canonical(value);
    }
    spend(1 + found->second.size() / 64);
    return found->second;
}

std::vector<Together> SchemaViews::alternatives(const Together &schemas) {
    std::vector<Together> views(1);
    for (const JsonValue *each : schemas) {
        expand(*each, views, 0);
    }
    return views;
}

void SchemaViews::expand(const JsonValue &schema, std::vector<Together> &views, uint32_t depth) {
    if (schema.is(JsonKind::boolean)) {
        if (!schema.boolean) {
            views.clear();
        }
        return;
    }
    if (!schema.is(JsonKind::object)) {
        bad_schema(schema, "part", "is no schema");
    }
    if (depth == kNestingMax) {
        refuse_keyword(schema, "schemas", " that are combined too deep");
    }
    if (!active_.insert(&schema).second) {
        bad_schema(schema, "part", "refers to itself, and to nothing else");
    }
    spend(1 + views.size());
    check_keywords(schema);
    for (Together &view : views) {
        add_once(view, schema);
    }
    if (const JsonValue *reference = find_of(schema, "$ref", JsonKind::string)) {
        expand(target(*reference), views, depth + 1);
    }
    if (const JsonValue *all = find_of(schema, "allOf", JsonKind::array)) {
        for (const JsonValue &each : all->values) {
            expand(each, views, depth + 1);
        }
    }
    if (const JsonValue *any = find_of(schema, "anyOf", JsonKind::array)) {
        expand_branches(*any, views, depth + 1);
    }
    if (const JsonValue *one = find_of(schema, "oneOf", JsonKind::array)) {
        require_disjoint(*one, depth + 1);
        expand_branches(*one, views, depth + 1);
    }
    active_.erase(&schema);
}

void SchemaViews::expand_branches(const JsonValue &branches, std::vector<Together> &views,
                                  uint32_t depth) {
    std::vector<Together> result;
    for (const JsonValue &branch : branches.values) {
        std::vector<Together> of_branch = views;
        expand(branch, of_branch, depth);
        result.insert(result.end(), of_branch.begin(), of_branch.end());
        if (result.size() > kAlternativesMax) {
            refuse_keyword(branches, "schemas", " that combine to more than 256 alternatives");
        }
    }
    views = std::move(result);
}

const JsonValue &SchemaViews::target(const JsonValue &reference) const {
    const std::string_view text = reference.text;
    if (text != "#" && text.substr(0, 2) != "#/") {
        refuse_keyword(reference, "\"$ref\"", " to other than # or #/...");
    }
    const JsonValue *at = &root_;
    for (size_t begin = 1; begin < text.size();) {
        const size_t end = std::min(text.find('/', begin + 1), text.size());
        const std::string part = pointer_part(text.substr(begin + 1, end - begin - 1));
        const bool digits =
            !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
        if (at->is(JsonKind::array) && digits && part.size() < 9 &&
            std::stoul(part) < at->values.size()) {
            at = &at->values[std::stoul(part)];
        } else {
            at = at->find(part);
        }
        if (at == nullptr) {
            bad_schema(reference, "$ref", "refers to nothing");
        }
        begin = end;
    }
    return *at;
}

uint32_t SchemaViews::types(const Together &view) const {
    uint32_t types = types_all;
    for (const JsonValue *schema : view) {
        const JsonValue *type = schema->find("type");
        if (type == nullptr) {
            continue;
        }
        uint32_t named = 0;
        if (type->is(JsonKind::array)) {
            for (const JsonValue &each : type->values) {
                named |= type_named(each);
            }
        } else {
            named = type_named(*type);
        }
        types &= named;
    }
    return types;
}

std::optional<std::vector<const JsonValue *>> SchemaViews::values(const Together &view) {
    std::optional<std::vector<const JsonValue *>> left;
    const auto meet = [&](const std::vector<const JsonValue *> &listed) {
        if (!left.has_value()) {
            left = listed;
            return;
        }
        std::set<std::string_view> texts;
        for (const JsonValue *each : listed) {
            texts.insert(text_of(*each));
        }
        std::erase_if(*left,
                      [&](const JsonValue *each) { return texts.count(text_of(*each)) == 0; });
    };
    for (const JsonValue *schema : view) {
        if (const JsonValue *listed = find_of(*schema, "enum", JsonKind::array)) {
            std::vector<const JsonValue *> each;
            for (const JsonValue &value : listed->values) {
                each.push_back(&value);
            }
            meet(each);
        }
        if (const JsonValue *only = schema->find("const")) {
            meet({only});
        }
    }
    if (left.has_value()) {
        spend(1 + left->size());
        const uint32_t allowed = types(view);
        std::erase_if(*left,
                      [&](const JsonValue *each) { return (type_of(*each) & allowed) == 0; });
    }
    return left;
}

Together SchemaViews::member(const Together &view, const std::string &name) const {
    Together result;
    for (const JsonValue *schema : view) {
        const JsonValue *properties = find_of(*schema, "properties", JsonKind::object);
        const JsonValue *named = properties != nullptr ? properties->find(name) : nullptr;
        const JsonValue *found = named != nullptr ? named : schema->find("additionalProperties");
        if (found != nullptr) {
            add_once(result, *found);
        }
    }
    return result;
}

// oneOf means what anyOf means if no value fits two branches.
void SchemaViews::require_disjoint(const JsonValue &branches, uint32_t depth) {
    std::vector<std::vector<Together>> views;
    for (const JsonValue &branch : branches.values) {
        views.emplace_back(1);
        expand(branch, views.back(), depth);
    }
    for (size_t i = 0; i < views.size(); ++i) {
        for (size_t j = i + 1; j < views.size(); ++j) {
            for (const Together &left : views[i]) {
                for (const Together &right : views[j]) {
                    if (!disjoint(left, right)) {
                        refuse_keyword(branches, "\"oneOf\"",
                                       " with branches that a value may fit two of");
                    }
                }
            }
        }
    }
}

uint32_t SchemaViews::types_of(const Together &view,
                               const std::optional<std::vector<const JsonValue *>> &values) const {
    if (!values.has_value()) {
        return types(view);
    }
    uint32_t result = 0;
    for (const JsonValue *each : *values) {
        result |= type_of(*each);
    }
    return result;
}

bool SchemaViews::disjoint(const Together &left, const Together &right) {
    const auto of_left = values(left), of_right = values(right);
    const uint32_t shared = types_of(left, of_left) & types_of(right, of_right);
    spend(1);
    if (shared == 0) {
        return true;
    }
    if (of_left.has_value() && of_right.has_value()) {
        std::set<std::string_view> texts;
        for (const JsonValue *each : *of_left) {
            texts.insert(text_of(*each));
        }
        return std::none_of(of_right->begin(), of_right->end(), [&](const JsonValue *each) {
            return texts.count(text_of(*each)) != 0;
        });
    }
    return shared == type_object && disjoint_members(left, right);
}

// Whether there is a member that both require, whose listed values differ.
bool SchemaViews::disjoint_members(const Together &left, const Together &right) {
    const auto required = [](const Together &view) {
        std::set<std::string> names;
        for (const JsonValue *schema : view) {
            const JsonValue *listed = find_of(*schema, "required", JsonKind::array);
            for (size_t i = 0; listed != nullptr && i < listed->values.size(); ++i) {
                names.insert(listed->values[i].text);
            }
        }
        return names;
    };
    const std::set<std::string> of_right = required(right);
    for (const std::string &name : required(left)) {
        spend(1);
        const Together first = member(left, name), second = member(right, name);
        if (of_right.count(name) != 0 && values(first).has_value() && values(second).has_value() &&
            disjoint(first, second)) {
            return true;
        }
    }
    return false;
}

} // namespace stasis::constraint
