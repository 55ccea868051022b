// A constraint as a grammar over bytes: a plain struct that the readers of the four notations fill
// and the automaton is made of. Means a set of texts, nothing else.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stasis::constraint {

using Part = uint32_t; // index of a node of the grammar
using Rule = uint32_t; // index of a rule

inline constexpr uint32_t kUnbounded = UINT32_MAX;
inline constexpr uint32_t kCountMax = 1000000; // repetitions that a notation may ask for
// Above it a constraint is refused: with the limits of dfa.h it bounds what any text can cost.
inline constexpr size_t kPartsMax = size_t{1} << 18;
// Nesting that every reader allows, so that no reader or builder runs out of stack.
inline constexpr uint32_t kNestingMax = 128;

struct Grammar {
    enum class Kind : uint8_t {
        bytes,    // one byte of low to high
        sequence, // at least the first `min` parts; it may stop after any of the later ones
        choice,   // one of the parts; of none: no text
        repeat,   // parts[0], at least `min` and at most `max` times
        call,     // what the rule `min` means
        members, // parts after the first two in this order, those that are repeats left out or not,
                 // with parts[0] between two that are there, and parts[1] after them if any is
        both,    // texts of parts[0] that are texts of parts[1]; neither calls
        without, // texts of parts[0] that are none of parts[1]; neither calls
    };
    struct Node {
        Kind kind = Kind::sequence;
        uint8_t low = 0, high = 0;
        uint32_t min = 0, max = 0;
        std::vector<Part> parts;
    };
    struct Named {
        std::string name; // for messages
        Part body = 0;
    };
    std::vector<Node> nodes;
    std::vector<Named> rules;
    Rule root = 0;

    // Each adds a node and returns it. All throw Error(unsupported) above kPartsMax.
    Part add(Node node);
    Part bytes(uint8_t low, uint8_t high);
    Part literal(std::string_view text);
    Part empty() { return sequence({}); }
    Part nothing() { return choice({}); }
    Part sequence(std::vector<Part> parts);
    Part sequence_from(std::vector<Part> parts, uint32_t min);
    Part choice(std::vector<Part> parts);
    Part repeat(Part part, uint32_t min, uint32_t max);
    Part optional(Part part) { return repeat(part, 0, 1); }
    Part call(Rule rule);
    Part members(Part separator, Part after, const std::vector<Part> &items);
    Part both(Part left, Part right);
    Part without(Part left, Part right);

    // Returns a new rule, whose body is set later.
    Rule add_rule(std::string name);
};

} // namespace stasis::constraint
