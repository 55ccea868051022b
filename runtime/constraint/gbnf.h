// Reads grammars in GBNF, llama.cpp's notation, as CONSTRAINTS.md describes it.
#pragma once

#include <string_view>

#include "runtime/constraint/grammar.h"

namespace stasis::constraint {

// Adds the rules of a grammar, whose root becomes grammar.root. Throws Error naming the offset:
// invalid_argument (no grammar, a rule that is missing or defined twice), unsupported (naming the
// feature).
void read_gbnf(Grammar &grammar, std::string_view text);

} // namespace stasis::constraint
