// The formats of strings that schemas may name, as regular expressions.
#pragma once

#include <optional>
#include <string_view>

namespace stasis::constraint {

// Returns an anchored expression for RegexUse::pattern; nothing for a format that is not known.
std::optional<std::string_view> format_expression(std::string_view format);

} // namespace stasis::constraint
