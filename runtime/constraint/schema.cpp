// The parts of a schema's instances, type by type; see schema.h.
#include "runtime/constraint/schema.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "format/state/error.h"
#include "runtime/constraint/characters.h"
#include "runtime/constraint/formats.h"
#include "runtime/constraint/json_parts.h"
#include "runtime/constraint/json_text.h"
#include "runtime/constraint/number_range.h"
#include "runtime/constraint/regex.h"
#include "runtime/constraint/schema_views.h"

namespace stasis::constraint {

namespace {

using JsonKind = JsonValue::Kind;

// How many of something there may be.
struct Counts {
    uint32_t min = 0, max = kUnbounded;

    void meet(const JsonValue &schema, const char *least, const char *most) {
        if (const JsonValue *found = schema.find(least)) {
            min = std::max(min, count_of(*found, least));
        }
        if (const JsonValue *found = schema.find(most)) {
            max = std::min(max, count_of(*found, most));
        }
    }
    bool any() const { return min == 0 && max == kUnbounded; }
};

// Which keywords say something about values of a type.
constexpr struct {
    const char *keyword;
    uint32_t types;
} kOfTypes[] = {{"minLength", type_string},
                {"maxLength", type_string},
                {"pattern", type_string},
                {"format", type_string},
                {"minimum", type_integer | type_number},
                {"maximum", type_integer | type_number},
                {"exclusiveMinimum", type_integer | type_number},
                {"exclusiveMaximum", type_integer | type_number},
                {"items", type_array},
                {"prefixItems", type_array},
                {"minItems", type_array},
                {"maxItems", type_array},
                {"properties", type_object},
                {"required", type_object},
                {"additionalProperties", type_object},
                {"minProperties", type_object},
                {"maxProperties", type_object}};

class Compiler {
  public:
    Compiler(Grammar &grammar, const JsonValue &root)
        : grammar_(grammar), parts_(grammar), views_(root), root_(root) {}

    void run() {
        grammar_.root = rule_of({&root_});
        while (!open_.empty()) { // not by recursion: schemas may refer to each other in long chains
            const auto [schemas, rule] = std::move(open_.front());
            open_.pop_front();
            std::vector<Part> choices;
            for (const Together &view : views_.alternatives(schemas)) {
                choices.push_back(view_part(view));
            }
            const Part body = grammar_.choice(std::move(choices));
            grammar_.rules[rule].body = body;
        }
    }

  private:
    Rule rule_of(const Together &schemas) {
        const auto [found, added] = rules_.try_emplace(schemas, Rule{0});
        if (added) {
            found->second =
                grammar_.add_rule("the schema at byte " + std::to_string(schemas[0]->offset));
            open_.emplace_back(schemas, found->second);
        }
        return found->second;
    }
    Part part_of(const Together &schemas) {
        return schemas.empty() ? parts_.any() : grammar_.call(rule_of(schemas));
    }
    Part view_part(const Together &view);
    Part values_part(const Together &view, const std::vector<const JsonValue *> &values);
    Part number_part(const Together &view, bool fraction);
    Part string_part(const Together &view);
    Part array_part(const Together &view);
    Part elements_part(const std::vector<Together> &first, const Together &rest, Counts counts);
    Part object_part(const Together &view);
    Part names_part(const std::vector<std::string> &names);
    std::vector<std::string> names_of(const Together &view, std::set<std::string> &required) const;

    Grammar &grammar_;
    JsonParts parts_;
    SchemaViews views_;
    const JsonValue &root_;
    std::map<Together, Rule> rules_;
    std::deque<std::pair<Together, Rule>> open_;
};

Part Compiler::view_part(const Together &view) {
    if (const auto values = views_.values(view)) {
        return values_part(view, *values);
    }
    const uint32_t types = views_.types(view);
    std::vector<Part> choices;
    if ((types & type_null) != 0) {
        choices.push_back(grammar_.literal("null"));
    }
    if ((types & type_boolean) != 0) {
        choices.push_back(grammar_.literal("true"));
        choices.push_back(grammar_.literal("false"));
    }
    if ((types & (type_integer | type_number)) != 0) {
        choices.push_back(number_part(view, (types & type_number) != 0));
    }
    if ((types & type_string) != 0) {
        choices.push_back(string_part(view));
    }
    if ((types & type_array) != 0) {
        choices.push_back(array_part(view));
    }
    if ((types & type_object) != 0) {
        choices.push_back(object_part(view));
    }
    return grammar_.choice(std::move(choices));
}

Part Compiler::values_part(const Together &view, const std::vector<const JsonValue *> &values) {
    std::vector<Part> choices;
    for (const JsonValue *value : values) {
        for (const JsonValue *schema : view) {
            for (const auto &each : kOfTypes) {
                const JsonValue *found = schema->find(each.keyword);
                if (found != nullptr && (each.types & type_of(*value)) != 0) {
                    refuse_keyword(*found, ("\"" + std::string(each.keyword) + "\"").c_str(),
                                   " beside a list of values");
                }
            }
        }
        choices.push_back(parts_.constant(*value));
    }
    return grammar_.choice(std::move(choices));
}

Part Compiler::number_part(const Together &view, bool fraction) {
    std::optional<Bound> low, high;
    for (const JsonValue *schema : view) {
        for (const char *keyword : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
            const JsonValue *found = find_of(*schema, keyword, JsonKind::number);
            if (found == nullptr) {
                continue;
            }
            const Bound bound{decimal(*found), keyword[0] == 'e'};
            const bool below = keyword[bound.exclusive ? 10 : 1] == 'i';
            std::optional<Bound> &side = below ? low : high;
            const bool closer = !side.has_value() || (below ? less(side->value, bound.value)
                                                            : less(bound.value, side->value));
            const bool same = side.has_value() && !less(side->value, bound.value) &&
                              !less(bound.value, side->value);
            if (closer || (same && bound.exclusive)) {
                side = bound;
            }
        }
    }
    if (!low.has_value() && !high.has_value()) {
        return fraction ? parts_.number() : parts_.integer();
    }
    return number_range(grammar_, low, high, fraction);
}

Part Compiler::string_part(const Together &view) {
    Counts length;
    std::optional<Part> body;
    const auto meet = [&](Part part) {
        body = body.has_value() ? grammar_.both(*body, part) : part;
    };
    for (const JsonValue *schema : view) {
        length.meet(*schema, "minLength", "maxLength");
        if (const JsonValue *pattern = find_of(*schema, "pattern", JsonKind::string)) {
            try {
                meet(read_regex(grammar_, pattern->text, RegexUse::pattern));
            } catch (const Error &error) {
                fail(error.status(), "the schema's pattern at byte %zu: %s", pattern->offset,
                     error.what());
            }
        }
        if (const JsonValue *format = find_of(*schema, "format", JsonKind::string)) {
            const std::optional<std::string_view> expression = format_expression(format->text);
            if (!expression.has_value()) {
                refuse_keyword(*format, ("the format \"" + format->text + "\"").c_str(), "");
            }
            meet(read_regex(grammar_, *expression, RegexUse::pattern));
        }
    }
    if (length.max < length.min) {
        return grammar_.nothing();
    }
    if (!body.has_value()) {
        if (length.any()) {
            return parts_.string();
        }
        body = grammar_.repeat(parts_.character(), length.min, length.max);
    } else if (!length.any()) {
        const Part character = one_of(grammar_, all_characters(), Spelling::json);
        meet(grammar_.repeat(character, length.min, length.max));
    }
    return grammar_.sequence({grammar_.literal("\""), *body, grammar_.literal("\"")});
}

Part Compiler::array_part(const Together &view) {
    Counts counts;
    size_t first_count = 0;
    for (const JsonValue *schema : view) {
        counts.meet(*schema, "minItems", "maxItems");
        if (const JsonValue *prefix = find_of(*schema, "prefixItems", JsonKind::array)) {
            first_count = std::max(first_count, prefix->values.size());
        }
    }
    const auto element = [&](size_t index) { // the last index stands for all after it
        Together schemas;
        for (const JsonValue *schema : view) {
            const JsonValue *prefix = schema->find("prefixItems");
            const bool listed = prefix != nullptr && index < prefix->values.size();
            const JsonValue *found = listed ? &prefix->values[index] : schema->find("items");
            if (found != nullptr &&
                std::find(schemas.begin(), schemas.end(), found) == schemas.end()) {
                schemas.push_back(found);
            }
        }
        return schemas;
    };
    std::vector<Together> first;
    for (size_t i = 0; i < std::min<size_t>(first_count, counts.max); ++i) {
        first.push_back(element(i));
    }
    if (first.empty()) {
        return parts_.array(part_of(element(first_count)), counts.min, counts.max);
    }
    return elements_part(first, element(first_count), counts);
}

// Arrays whose first elements have schemas of their own; it may end after any of them.
Part Compiler::elements_part(const std::vector<Together> &first, const Together &rest,
                             Counts counts) {
    if (counts.max < counts.min) {
        return grammar_.nothing();
    }
    const auto fixed = static_cast<uint32_t>(first.size());
    std::vector<Part> elements;
    for (const Together &each : first) {
        const Part element = part_of(each);
        elements.push_back(elements.empty() ? element
                                            : grammar_.sequence({parts_.separator(), element}));
    }
    if (counts.max > fixed) {
        const uint32_t max = counts.max == kUnbounded ? kUnbounded : counts.max - fixed;
        elements.push_back(grammar_.repeat(grammar_.sequence({parts_.separator(), part_of(rest)}),
                                           counts.min > fixed ? counts.min - fixed : 0, max));
    }
    const auto least = std::min<uint32_t>(std::max<uint32_t>(counts.min, 1),
                                          static_cast<uint32_t>(elements.size()));
    const Part some =
        grammar_.sequence({grammar_.sequence_from(std::move(elements), least), parts_.blank()});
    return grammar_.sequence({grammar_.literal("["), parts_.blank(),
                              counts.min > 0 ? some : grammar_.optional(some),
                              grammar_.literal("]")});
}

// Returns the names of members that schemas mention, in the order of the text: properties, then
// names that are only required.
std::vector<std::string> Compiler::names_of(const Together &view,
                                            std::set<std::string> &required) const {
    std::vector<std::string> names;
    std::set<std::string> known;
    for (const JsonValue *schema : view) {
        const JsonValue *properties = find_of(*schema, "properties", JsonKind::object);
        for (const std::string &key :
             properties != nullptr ? properties->keys : std::vector<std::string>{}) {
            if (known.insert(key).second) {
                names.push_back(key);
            }
        }
    }
    for (const JsonValue *schema : view) {
        const JsonValue *listed = find_of(*schema, "required", JsonKind::array);
        for (size_t i = 0; listed != nullptr && i < listed->values.size(); ++i) {
            const JsonValue &name = listed->values[i];
            if (!name.is(JsonKind::string)) {
                bad_schema(name, "required", "names what is not a string");
            }
            required.insert(name.text);
            if (known.insert(name.text).second) {
                names.push_back(name.text);
            }
        }
    }
    return names;
}

Part Compiler::object_part(const Together &view) {
    Counts counts;
    std::set<std::string> required;
    const std::vector<std::string> names = names_of(view, required);
    Together further; // schemas of members that none of them names
    bool closed = false;
    for (const JsonValue *schema : view) {
        counts.meet(*schema, "minProperties", "maxProperties");
        if (const JsonValue *found = schema->find("additionalProperties")) {
            closed = closed || (found->is(JsonKind::boolean) && !found->boolean);
            further.push_back(found);
        }
    }
    if (names.empty()) {
        if (closed) {
            counts.max = 0;
            further.clear();
        }
        return further.empty() && counts.any()
                   ? parts_.any_object()
                   : parts_.object(parts_.pair(parts_.string(), part_of(further)), counts.min,
                                   counts.max);
    }
    if (counts.min > required.size()) {
        refuse_keyword(*view[0], "\"minProperties\"", " beside properties that may be absent");
    }
    if (counts.max < names.size() || (!closed && counts.max != kUnbounded)) {
        refuse_keyword(*view[0], "\"maxProperties\"", " beside properties");
    }
    std::vector<Part> items;
    for (const std::string &name : names) {
        const Part item = parts_.pair(parts_.quoted(name), part_of(views_.member(view, name)));
        items.push_back(required.count(name) != 0 ? item : grammar_.optional(item));
    }
    if (!closed) {
        const Part pair = parts_.pair(names_part(names), part_of(further));
        const Part more = grammar_.sequence({parts_.separator(), pair});
        items.push_back(
            grammar_.optional(grammar_.sequence({pair, grammar_.repeat(more, 0, kUnbounded)})));
    }
    return grammar_.sequence({grammar_.literal("{"), parts_.blank(),
                              grammar_.members(parts_.separator(), parts_.blank(), items),
                              grammar_.literal("}")});
}

// Names that are none of these, each in its one spelling.
Part Compiler::names_part(const std::vector<std::string> &names) {
    std::vector<Part> known;
    for (const std::string &name : names) {
        known.push_back(grammar_.literal(json_spelled(name)));
    }
    const Part any =
        grammar_.repeat(one_of(grammar_, all_characters(), Spelling::json), 0, kUnbounded);
    const Part other = grammar_.without(any, grammar_.choice(std::move(known)));
    const Rule rule = grammar_.add_rule("a further name");
    const Part body = grammar_.sequence({grammar_.literal("\""), other, grammar_.literal("\"")});
    grammar_.rules[rule].body = body;
    return grammar_.call(rule);
}

} // namespace

void read_schema(Grammar &grammar, std::string_view text) {
    const JsonValue root = read_json(text);
    Compiler(grammar, root).run();
}

} // namespace stasis::constraint
