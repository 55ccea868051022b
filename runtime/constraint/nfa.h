// Automata that may be in several states at once: the form between a grammar's parts and a Dfa.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/constraint/dfa.h"
#include "runtime/constraint/grammar.h"

namespace stasis::constraint {

struct Nfa {
    struct Arc {
        enum class Kind : uint8_t { empty, bytes, call };
        Kind kind = Kind::empty;
        uint8_t low = 0, high = 0;
        Rule rule = 0;
        uint32_t from = 0, to = 0;
    };
    uint32_t nodes = 1;    // node 0 is the start
    uint32_t end = 0;      // accepts
    std::vector<Arc> arcs; // ascending by `from`, those of a node in the order of the grammar
};

// Returns the automaton of a part; see make_dfa.
Nfa make_nfa(const Grammar &grammar, Part part, const std::vector<bool> &nullable, Work &work);

} // namespace stasis::constraint
