// Deterministic automata over bytes and calls of rules, made from parts of a grammar by the subset
// construction. What this costs is counted, and bounded for any grammar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "format/state/watch.h"
#include "runtime/constraint/grammar.h"

namespace stasis::constraint {

// Steps that the making of one constraint's automata may take: entries of the sets that it walks,
// and by their memory arcs and states.
inline constexpr size_t kWorkMax = size_t{1} << 23, kStepsOfArc = 8, kStepsOfState = 32;

struct Work {
    const Watch &watch;
    size_t left = kWorkMax;
    // Throws Error(unsupported) when nothing is left, Error(cancelled).
    void spend(size_t steps);
};

struct Dfa {
    struct Edge {
        uint8_t low = 0, high = 0;
        uint32_t target = 0;
    };
    struct Call {
        Rule rule = 0;
        uint32_t target = 0; // where it goes on after the rule
    };
    struct State {
        std::vector<Edge> edges; // ascending, without overlap
        std::vector<Call> calls; // ascending by rule, each once
        bool accepts = false;
    };
    std::vector<State> states; // [0] is the start, to which nothing leads
};

// Returns the automaton of a part. A call stands for the texts of its rule that are not empty;
// `nullable` says of each rule whether it has the empty one too.
Dfa make_dfa(const Grammar &grammar, Part part, const std::vector<bool> &nullable, Work &work);

// Returns the texts of `left` that are texts of `right`, or those that are not. Neither calls.
Dfa combined(const Dfa &left, const Dfa &right, bool in_right, Work &work);

// A list of intervals of bytes, each with what is to be found in it. Of ranges that overlap it
// makes intervals that do not, in each of which the same ranges hold.
class Intervals {
  public:
    void add(uint8_t low, uint8_t high, uint32_t index);
    struct Interval {
        uint8_t low = 0, high = 0;
        std::vector<uint32_t> indices; // in the order in which they were added
    };
    // Returns those in which any range holds, ascending. Called once. Throws as Work::spend.
    const std::vector<Interval> &split(Work &work);

  private:
    struct Range {
        uint8_t low, high;
        uint32_t index;
    };
    std::vector<Range> ranges_;
    std::vector<Interval> intervals_;
};

} // namespace stasis::constraint
