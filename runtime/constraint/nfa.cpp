// Thompson's construction over the kinds of parts; see nfa.h.
#include "runtime/constraint/nfa.h"

#include <algorithm>

namespace stasis::constraint {

namespace {

using PartKind = Grammar::Kind;

// No part leads back to the node that it begins at, so parts may begin at the same node.
class Builder {
  public:
    Builder(const Grammar &grammar, const std::vector<bool> &nullable, Work &work)
        : grammar_(grammar), nullable_(nullable), work_(work) {}

    // Adds a part that begins at a node. Returns the node where it ends.
    uint32_t insert(Part part, uint32_t from);
    Nfa take(uint32_t end);

  private:
    uint32_t node() { return nfa_.nodes++; }
    void skip(uint32_t from, uint32_t to) { arc({.from = from, .to = to}); }
    void arc(const Nfa::Arc &arc) {
        work_.spend(kStepsOfArc);
        nfa_.arcs.push_back(arc);
    }
    uint32_t insert_sequence(const Grammar::Node &sequence, uint32_t from);
    uint32_t insert_choice(const Grammar::Node &choice, uint32_t from);
    uint32_t insert_repeat(const Grammar::Node &repeat, uint32_t from);
    uint32_t insert_members(const Grammar::Node &members, uint32_t from);
    uint32_t insert_dfa(const Dfa &dfa, uint32_t from);

    const Grammar &grammar_;
    const std::vector<bool> &nullable_;
    Work &work_;
    Nfa nfa_;
};

uint32_t Builder::insert(Part part, uint32_t from) {
    work_.spend(1);
    const Grammar::Node &node_of = grammar_.nodes[part];
    switch (node_of.kind) {
    case PartKind::sequence:
        return insert_sequence(node_of, from);
    case PartKind::choice:
        return insert_choice(node_of, from);
    case PartKind::repeat:
        return insert_repeat(node_of, from);
    case PartKind::members:
        return insert_members(node_of, from);
    case PartKind::both:
    case PartKind::without: {
        const Dfa left = make_dfa(grammar_, node_of.parts[0], nullable_, work_);
        const Dfa right = make_dfa(grammar_, node_of.parts[1], nullable_, work_);
        return insert_dfa(combined(left, right, node_of.kind == PartKind::both, work_), from);
    }
    default:
        break;
    }
    const uint32_t to = node();
    if (node_of.kind == PartKind::bytes) {
        arc({.kind = Nfa::Arc::Kind::bytes,
             .low = node_of.low,
             .high = node_of.high,
             .from = from,
             .to = to});
        return to;
    }
    arc({.kind = Nfa::Arc::Kind::call, .rule = node_of.min, .from = from, .to = to});
    if (nullable_[node_of.min]) {
        skip(from, to);
    }
    return to;
}

uint32_t Builder::insert_sequence(const Grammar::Node &sequence, uint32_t from) {
    const bool may_stop = sequence.min < sequence.parts.size();
    const uint32_t end = may_stop ? node() : 0;
    uint32_t at = from;
    for (size_t i = 0; i < sequence.parts.size(); ++i) {
        if (i >= sequence.min) {
            skip(at, end);
        }
        at = insert(sequence.parts[i], at);
    }
    if (!may_stop) {
        return at;
    }
    skip(at, end);
    return end;
}

uint32_t Builder::insert_choice(const Grammar::Node &choice, uint32_t from) {
    const uint32_t end = node();
    for (const Part part : choice.parts) {
        const uint32_t last = insert(part, from);
        skip(last, end);
    }
    return end;
}

uint32_t Builder::insert_repeat(const Grammar::Node &repeat, uint32_t from) {
    uint32_t at = from;
    for (uint32_t i = 0; i < repeat.min; ++i) {
        at = insert(repeat.parts[0], at);
    }
    if (repeat.max == kUnbounded) {
        const uint32_t loop = node();
        skip(at, loop);
        const uint32_t last = insert(repeat.parts[0], loop);
        skip(last, loop);
        return loop;
    }
    const uint32_t end = node();
    for (uint32_t i = repeat.min; i < repeat.max; ++i) {
        skip(at, end);
        at = insert(repeat.parts[0], at);
    }
    skip(at, end);
    return end;
}

// Two chains of nodes: no member so far, and some.
uint32_t Builder::insert_members(const Grammar::Node &members, uint32_t from) {
    uint32_t none = from, some = node();
    for (size_t i = 2; i < members.parts.size(); ++i) {
        const Grammar::Node &item = grammar_.nodes[members.parts[i]];
        const bool optional = item.kind == PartKind::repeat;
        const uint32_t begin = node(), none_after = node(), some_after = node();
        skip(none, begin);
        skip(insert(members.parts[0], some), begin);
        skip(insert(optional ? item.parts[0] : members.parts[i], begin), some_after);
        if (optional) {
            skip(none, none_after);
            skip(some, some_after);
        }
        none = none_after;
        some = some_after;
    }
    const uint32_t end = insert(members.parts[1], some);
    skip(none, end);
    return end;
}

uint32_t Builder::insert_dfa(const Dfa &dfa, uint32_t from) {
    const uint32_t base = nfa_.nodes; // of state 1: nothing leads to state 0
    nfa_.nodes += static_cast<uint32_t>(dfa.states.size());
    const uint32_t end = node();
    for (uint32_t i = 0; i < dfa.states.size(); ++i) {
        const uint32_t at = i == 0 ? from : base + i;
        for (const Dfa::Edge &edge : dfa.states[i].edges) {
            arc({.kind = Nfa::Arc::Kind::bytes,
                 .low = edge.low,
                 .high = edge.high,
                 .from = at,
                 .to = base + edge.target});
        }
        if (dfa.states[i].accepts) {
            skip(at, end);
        }
    }
    return end;
}

Nfa Builder::take(uint32_t end) {
    nfa_.end = end;
    std::stable_sort(
        nfa_.arcs.begin(), nfa_.arcs.end(),
        [](const Nfa::Arc &left, const Nfa::Arc &right) { return left.from < right.from; });
    return std::move(nfa_);
}

} // namespace

Nfa make_nfa(const Grammar &grammar, Part part, const std::vector<bool> &nullable, Work &work) {
    Builder builder(grammar, nullable, work);
    return builder.take(builder.insert(part, 0));
}

} // namespace stasis::constraint
