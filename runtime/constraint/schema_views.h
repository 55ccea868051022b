// A schema taken apart: references followed, allOf, anyOf and oneOf resolved, so that what is left
// are lists of plain schemas that hold together.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/constraint/json_text.h"

namespace stasis::constraint {

// Schemas that all hold for a value, each once, in the order in which they were found. Of those
// that a view has, only keywords that are no references and no lists of schemas are still to be
// read.
using Together = std::vector<const JsonValue *>;

// Types as bits. An integer is a number too: `number` are those with a fraction or an exponent.
enum Type : uint32_t {
    type_null = 1,
    type_boolean = 2,
    type_integer = 4,
    type_number = 8,
    type_string = 16,
    type_array = 32,
    type_object = 64,
    types_all = 127,
};

class SchemaViews {
  public:
    // `root` is kept by reference.
    explicit SchemaViews(const JsonValue &root) : root_(root) {}

    // Returns alternatives: a value fits the schemas if it fits one of them; none if nothing fits.
    // Throws Error: invalid_argument, unsupported (naming the keyword).
    std::vector<Together> alternatives(const Together &schemas);

    // Returns the types that all the schemas of a view allow.
    uint32_t types(const Together &view) const;
    // Returns the values that enum and const leave, by their canonical texts, in the order of the
    // first list; nothing if no schema has either. Values of other types are left out.
    std::optional<std::vector<const JsonValue *>> values(const Together &view);
    // Returns the schemas for the member of a name in objects that fit the view.
    Together member(const Together &view, const std::string &name) const;

  private:
    void expand(const JsonValue &schema, std::vector<Together> &views, uint32_t depth);
    void expand_branches(const JsonValue &branches, std::vector<Together> &views, uint32_t depth);
    void check_keywords(const JsonValue &schema);
    const JsonValue &target(const JsonValue &reference) const;
    void require_disjoint(const JsonValue &branches, uint32_t depth);
    bool disjoint(const Together &left, const Together &right);
    bool disjoint_members(const Together &left, const Together &right);
    uint32_t types_of(const Together &view,
                      const std::optional<std::vector<const JsonValue *>> &values) const;
    const std::string &text_of(const JsonValue &value);
    void spend(size_t steps);

    const JsonValue &root_;
    std::set<const JsonValue *> checked_, active_;
    std::map<const JsonValue *, std::string> texts_; // canonical ones, of values of lists
    size_t steps_ = 0;
};

// What a keyword says. All throw Error(invalid_argument) naming keyword and offset where it is of
// another type.
uint32_t type_named(const JsonValue &name);
uint32_t type_of(const JsonValue &value);
uint32_t count_of(const JsonValue &value, const char *keyword);
const JsonValue *find_of(const JsonValue &schema, const char *keyword, JsonValue::Kind kind);

// Refuse a keyword of a schema, naming both and the reason.
[[noreturn]] void bad_schema(const JsonValue &at, const char *keyword, const char *what);
[[noreturn]] void refuse_keyword(const JsonValue &at, const char *keyword, const char *what);

} // namespace stasis::constraint
