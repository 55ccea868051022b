// The built-in functions of templates: filters, tests, methods of strings and dicts. Pure functions
// of their arguments; they know neither the syntax tree nor the variables.
#pragma once

#include <ctime>
#include <string_view>

#include "runtime/text/jinja/value.h"

namespace stasis::jinja {

struct Arguments {
    List positional;
    Dict keyword;
    // Returns the argument at `index` or called `name`; null if absent.
    const Value *find(size_t index, std::string_view name) const;
};

// Each throws Error(unsupported) for an unknown name and for operands of the wrong type.
Value apply_filter(std::string_view name, const Value &subject, const Arguments &arguments,
                   Budget &budget);
bool apply_test(std::string_view name, const Value &subject, const Arguments &arguments,
                Budget &budget);
Value call_method(const Value &object, std::string_view name, const Arguments &arguments,
                  Budget &budget);
// Throws Refusal for raise_exception.
Value call_builtin(Builtin builtin, const Arguments &arguments, std::time_t date, Budget &budget);

Value get_attribute(const Value &object, std::string_view name);
Value get_item(const Value &object, const Value &index, Budget &budget);
Value get_slice(const Value &object, const Value &begin, const Value &end, const Value &step,
                Budget &budget);

} // namespace stasis::jinja
