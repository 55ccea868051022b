// What a grammar is compiled into: an automaton for each rule, whose states are numbered together.
// Immutable. From each state that is kept its rule can be finished, so that a text that the
// automaton survives is the beginning of one that the constraint allows.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/constraint/dfa.h"
#include "runtime/constraint/grammar.h"

namespace stasis::constraint {

struct Automaton {
    std::vector<Dfa::State> states; // calls name rules by their rank
    // By rank: rules called where another begins come after it.
    std::vector<uint32_t> starts;
    uint32_t root = 0;         // rank
    bool allows_empty = false; // the empty text
};

// Throws Error: invalid_argument (no text fits), unsupported (too large; a rule that calls itself
// before any text, naming it), cancelled.
Automaton compile(const Grammar &grammar, const Watch &watch);

// Whether nothing but the end of the rule can follow a state.
inline bool is_end(const Dfa::State &state) {
    return state.accepts && state.edges.empty() && state.calls.empty();
}

} // namespace stasis::constraint
