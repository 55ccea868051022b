// Reads regular expressions: the notation of CONSTRAINTS.md, a part of what ECMA-262 and others
// have in common. Means a set of texts, so nothing depends on how a text would be searched.
#pragma once

#include <string_view>

#include "runtime/constraint/characters.h"
#include "runtime/constraint/grammar.h"

namespace stasis::constraint {

enum class RegexUse : uint8_t {
    whole,  // the expression is the whole text, in UTF-8
    pattern // a JSON schema's: found anywhere, unless anchored, in the text of a JSON string
};

// Returns the texts of an expression. Throws Error naming the offset: invalid_argument (it is
// none), unsupported (naming the feature).
Part read_regex(Grammar &grammar, std::string_view text, RegexUse use);

} // namespace stasis::constraint
