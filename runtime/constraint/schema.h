// Compiles a JSON schema (draft 2020-12, the part that CONSTRAINTS.md lists) to a grammar of its
// instances, in the spellings that are fixed there.
#pragma once

#include <string_view>

#include "runtime/constraint/grammar.h"

namespace stasis::constraint {

// Throws Error naming the place: invalid_argument (no JSON, no schema), unsupported (naming the
// keyword).
void read_schema(Grammar &grammar, std::string_view text);

} // namespace stasis::constraint
