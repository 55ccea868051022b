// Compiles grammars: empty texts, dead ends, the order of rules; see automaton.h.
#include "runtime/constraint/automaton.h"

#include <algorithm>
#include <utility>

#include "format/state/error.h"

namespace stasis::constraint {

namespace {

using PartKind = Grammar::Kind;

// Whether a part has the empty text, where that of the parts before it is known.
bool has_empty(const Grammar &grammar, const Grammar::Node &node, const std::vector<bool> &parts,
               const std::vector<bool> &rules) {
    const auto part = [&](size_t index) { return parts[node.parts[index]]; };
    switch (node.kind) {
    case PartKind::bytes:
        return false;
    case PartKind::sequence:
        for (size_t i = 0; i < node.min; ++i) {
            if (!part(i)) {
                return false;
            }
        }
        return true;
    case PartKind::choice:
        for (size_t i = 0; i < node.parts.size(); ++i) {
            if (part(i)) {
                return true;
            }
        }
        return false;
    case PartKind::repeat:
        return node.min == 0 || part(0);
    case PartKind::call:
        return rules[node.min];
    case PartKind::members:
        for (size_t i = 2; i < node.parts.size(); ++i) {
            if (!part(i) && grammar.nodes[node.parts[i]].kind != PartKind::repeat) {
                return false;
            }
        }
        return true;
    case PartKind::both:
        return part(0) && part(1);
    case PartKind::without:
        return part(0) && !part(1);
    }
    return false;
}

// Returns of each rule whether it has the empty text. Parts come after those that they contain.
std::vector<bool> rules_with_empty(const Grammar &grammar, Work &work) {
    std::vector<bool> rules(grammar.rules.size(), false), parts(grammar.nodes.size(), false);
    for (bool changed = true; changed;) {
        changed = false;
        work.spend(grammar.nodes.size());
        for (size_t i = 0; i < grammar.nodes.size(); ++i) {
            parts[i] = has_empty(grammar, grammar.nodes[i], parts, rules);
        }
        for (size_t i = 0; i < rules.size(); ++i) {
            if (parts[grammar.rules[i].body] && !rules[i]) {
                rules[i] = changed = true;
            }
        }
    }
    return rules;
}

// Finds the states from which their rule can be finished, from its end backwards.
class Living {
  public:
    explicit Living(const Automaton &automaton)
        : automaton_(automaton), before_(automaton.states.size()),
          waiting_(automaton.starts.size()), alive_(automaton.states.size(), false),
          rule_of_start_(automaton.states.size(), UINT32_MAX) {
        for (uint32_t rule = 0; rule < automaton.starts.size(); ++rule) {
            rule_of_start_[automaton.starts[rule]] = rule;
        }
    }

    std::vector<bool> find() {
        for (uint32_t i = 0; i < automaton_.states.size(); ++i) {
            for (const Dfa::Edge &edge : automaton_.states[i].edges) {
                before_[edge.target].push_back({i, UINT32_MAX});
            }
            for (const Dfa::Call &call : automaton_.states[i].calls) {
                before_[call.target].push_back({i, call.rule});
            }
        }
        for (uint32_t i = 0; i < automaton_.states.size(); ++i) {
            if (automaton_.states[i].accepts) {
                revive(i);
            }
        }
        while (!open_.empty()) {
            const uint32_t state = open_.back();
            open_.pop_back();
            for (const auto &[from, rule] : before_[state]) {
                if (rule == UINT32_MAX || alive_[automaton_.starts[rule]]) {
                    revive(from);
                } else {
                    waiting_[rule].push_back(from);
                }
            }
            if (rule_of_start_[state] != UINT32_MAX) {
                for (const uint32_t from : waiting_[rule_of_start_[state]]) {
                    revive(from);
                }
            }
        }
        return std::move(alive_);
    }

  private:
    void revive(uint32_t state) {
        if (!alive_[state]) {
            alive_[state] = true;
            open_.push_back(state);
        }
    }

    const Automaton &automaton_;
    std::vector<std::vector<std::pair<uint32_t, uint32_t>>>
        before_;                                 // state, rule called on the way
    std::vector<std::vector<uint32_t>> waiting_; // for a rule that may have no text
    std::vector<bool> alive_;
    std::vector<uint32_t> rule_of_start_;
    std::vector<uint32_t> open_;
};

// Takes away what leads nowhere.
void remove_dead_ends(Automaton &automaton) {
    const std::vector<bool> alive = Living(automaton).find();
    for (Dfa::State &state : automaton.states) {
        std::erase_if(state.edges, [&](const Dfa::Edge &edge) { return !alive[edge.target]; });
        std::erase_if(state.calls, [&](const Dfa::Call &call) {
            return !alive[call.target] || !alive[automaton.starts[call.rule]];
        });
    }
    if (!alive[automaton.starts[automaton.root]] && !automaton.allows_empty) {
        fail(Status::invalid_argument, "no text fits the constraint");
    }
}

// Renumbers rules so that those that are called where a rule begins come after it.
void order_rules(Automaton &automaton, const Grammar &grammar) {
    const size_t count = automaton.starts.size();
    const auto calls_of = [&](uint32_t rule) -> const std::vector<Dfa::Call> & {
        return automaton.states[automaton.starts[rule]].calls;
    };
    std::vector<uint32_t> callers(count, 0), order;
    for (uint32_t rule = 0; rule < count; ++rule) {
        for (const Dfa::Call &call : calls_of(rule)) {
            ++callers[call.rule];
        }
    }
    for (uint32_t rule = 0; rule < count; ++rule) {
        if (callers[rule] == 0) {
            order.push_back(rule);
        }
    }
    for (size_t i = 0; i < order.size(); ++i) {
        for (const Dfa::Call &call : calls_of(order[i])) {
            if (--callers[call.rule] == 0) {
                order.push_back(call.rule);
            }
        }
    }
    if (order.size() < count) { // what is left is in a circle, or called from one
        const auto left =
            std::find_if(callers.begin(), callers.end(), [](uint32_t calls) { return calls != 0; });
        fail(Status::unsupported,
             "the rule \"%s\" of the constraint, or one that it is called by, "
             "calls itself before any text",
             grammar.rules[static_cast<size_t>(left - callers.begin())].name.c_str());
    }
    std::vector<uint32_t> rank(count), starts(count);
    for (uint32_t i = 0; i < count; ++i) {
        rank[order[i]] = i;
        starts[i] = automaton.starts[order[i]];
    }
    automaton.starts = std::move(starts);
    automaton.root = rank[automaton.root];
    for (Dfa::State &state : automaton.states) {
        for (Dfa::Call &call : state.calls) {
            call.rule = rank[call.rule];
        }
    }
}

} // namespace

Automaton compile(const Grammar &grammar, const Watch &watch) {
    Work work{watch};
    const std::vector<bool> empty = rules_with_empty(grammar, work);
    Automaton automaton;
    automaton.root = grammar.root;
    automaton.allows_empty = empty[grammar.root];
    for (const Grammar::Named &rule : grammar.rules) {
        Dfa dfa = make_dfa(grammar, rule.body, empty, work);
        dfa.states[0].accepts = false; // whoever calls it knows about the empty text
        const auto base = static_cast<uint32_t>(automaton.states.size());
        automaton.starts.push_back(base);
        for (Dfa::State &state : dfa.states) {
            for (Dfa::Edge &edge : state.edges) {
                edge.target += base;
            }
            for (Dfa::Call &call : state.calls) {
                call.target += base;
            }
            automaton.states.push_back(std::move(state));
        }
    }
    remove_dead_ends(automaton);
    order_rules(automaton, grammar);
    return automaton;
}

} // namespace stasis::constraint
