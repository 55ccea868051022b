// A constraint as a host gives it: a kind and a text, which is all that a session's file stores of
// it. CONSTRAINTS.md says which texts each allows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "runtime/constraint/automaton.h"

namespace stasis::constraint {

enum class ConstraintKind : uint8_t {
    json_schema = 1, // the instances of a JSON schema
    json = 2,        // any JSON value; the text is empty
    regex = 3,       // the texts of a regular expression
    grammar = 4,     // the texts of a grammar in GBNF
};

inline constexpr size_t kConstraintBytesMax = size_t{1} << 18;

// Returns the automaton of a constraint. Throws Error: invalid_argument (not in the notation,
// naming the offset; no text fits), unsupported (naming what is not, or too large). Time and memory
// are bounded by constants, and for texts of ordinary kinds in proportion to the text. `watch` can
// cancel it.
std::shared_ptr<const Automaton> compile_constraint(ConstraintKind kind, std::string_view text,
                                                    const Watch &watch = {});

} // namespace stasis::constraint
