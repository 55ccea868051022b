// The subset construction, and the product of two automata; see dfa.h.
#include "runtime/constraint/dfa.h"

#include <algorithm>
#include <map>
#include <utility>

#include "format/state/error.h"
#include "runtime/constraint/nfa.h"
#include "runtime/constraint/numbered.h"

namespace stasis::constraint {

namespace {

using Arc = Nfa::Arc;

class Subsets {
  public:
    Subsets(const Nfa &nfa, Work &work) : nfa_(nfa), work_(work), seen_(nfa.nodes, 0) {
        first_.assign(size_t{nfa.nodes} + 1, 0);
        for (const Arc &arc : nfa.arcs) {
            ++first_[arc.from + 1];
        }
        for (uint32_t i = 0; i < nfa.nodes; ++i) {
            first_[i + 1] += first_[i];
        }
    }

    Dfa make();

  private:
    std::vector<uint32_t> closure(const std::vector<uint32_t> &nodes);
    uint32_t state_of(const std::vector<uint32_t> &nodes);
    void add_edges(uint32_t state);
    void add_calls(uint32_t state);

    const Nfa &nfa_;
    Work &work_;
    std::vector<uint32_t> first_; // arcs of a node are those from first_[node] on
    std::vector<uint32_t> seen_;  // by which closure a node was seen last
    uint32_t closures_ = 0;
    Numbered<uint32_t> sets_; // of state i + 1; that of the start is start_
    std::vector<uint32_t> start_;
    Dfa dfa_;
};

// Returns the nodes that are reached without a byte and from which something goes on, or which
// accept: what two sets have in common decides all that follows.
std::vector<uint32_t> Subsets::closure(const std::vector<uint32_t> &nodes) {
    ++closures_;
    std::vector<uint32_t> open, result;
    const auto visit = [&](uint32_t node) {
        if (seen_[node] != closures_) {
            seen_[node] = closures_;
            open.push_back(node);
        }
    };
    for (const uint32_t node : nodes) {
        visit(node);
    }
    while (!open.empty()) {
        const uint32_t node = open.back();
        open.pop_back();
        work_.spend(1 + first_[node + 1] - first_[node]);
        bool goes_on = node == nfa_.end;
        for (uint32_t i = first_[node]; i < first_[node + 1]; ++i) {
            const Arc &arc = nfa_.arcs[i];
            if (arc.kind == Arc::Kind::empty) {
                visit(arc.to);
            } else {
                goes_on = true;
            }
        }
        if (goes_on) {
            result.push_back(node);
        }
    }
    std::sort(result.begin(), result.end());
    return result;
}

uint32_t Subsets::state_of(const std::vector<uint32_t> &nodes) {
    const uint32_t number = sets_.number_of(closure(nodes)) + 1;
    if (number == dfa_.states.size()) {
        work_.spend(kStepsOfState);
        dfa_.states.emplace_back();
    }
    return number;
}

void Subsets::add_edges(uint32_t state) {
    const std::vector<uint32_t> nodes = state == 0 ? start_ : sets_.entries(state - 1);
    Intervals intervals;
    for (const uint32_t node : nodes) {
        for (uint32_t i = first_[node]; i < first_[node + 1]; ++i) {
            if (nfa_.arcs[i].kind == Arc::Kind::bytes) {
                intervals.add(nfa_.arcs[i].low, nfa_.arcs[i].high, nfa_.arcs[i].to);
            }
        }
    }
    for (const Intervals::Interval &each : intervals.split(work_)) {
        const uint32_t target = state_of(each.indices);
        std::vector<Dfa::Edge> &edges = dfa_.states[state].edges;
        if (!edges.empty() && edges.back().target == target && edges.back().high + 1 == each.low) {
            edges.back().high = each.high;
        } else {
            edges.push_back({each.low, each.high, target});
        }
    }
}

void Subsets::add_calls(uint32_t state) {
    const std::vector<uint32_t> nodes = state == 0 ? start_ : sets_.entries(state - 1);
    std::map<Rule, std::vector<uint32_t>> targets;
    for (const uint32_t node : nodes) {
        for (uint32_t i = first_[node]; i < first_[node + 1]; ++i) {
            if (nfa_.arcs[i].kind == Arc::Kind::call) {
                targets[nfa_.arcs[i].rule].push_back(nfa_.arcs[i].to);
            }
        }
    }
    for (const auto &[rule, after] : targets) {
        const uint32_t target = state_of(after);
        dfa_.states[state].calls.push_back({rule, target});
    }
}

Dfa Subsets::make() {
    start_ = closure({0});
    dfa_.states.emplace_back();
    for (uint32_t state = 0; state < dfa_.states.size(); ++state) {
        const std::vector<uint32_t> &nodes = state == 0 ? start_ : sets_.entries(state - 1);
        dfa_.states[state].accepts = std::binary_search(nodes.begin(), nodes.end(), nfa_.end);
        add_edges(state);
        add_calls(state);
    }
    return std::move(dfa_);
}

} // namespace

void Work::spend(size_t steps) {
    if (steps > left) {
        fail(Status::unsupported,
             "the constraint is too large: its automaton would take more "
             "than %zu steps to make",
             kWorkMax);
    }
    constexpr size_t kStepsBetweenLooks = size_t{1} << 16;
    if (left / kStepsBetweenLooks != (left - steps) / kStepsBetweenLooks) {
        watch.look(kWorkMax - left, kWorkMax);
    }
    left -= steps;
}

Dfa make_dfa(const Grammar &grammar, Part part, const std::vector<bool> &nullable, Work &work) {
    const Nfa nfa = make_nfa(grammar, part, nullable, work);
    return Subsets(nfa, work).make();
}

Dfa combined(const Dfa &left, const Dfa &right, bool in_right, Work &work) {
    constexpr uint32_t kOutside = UINT32_MAX; // beyond all texts of `right`
    Numbered<std::pair<uint32_t, uint32_t>> pairs;
    const Dfa::State none;
    Dfa result;
    pairs.number_of({{0, 0}});
    for (uint32_t state = 0; state < pairs.size(); ++state) {
        const auto [of_left, of_right] = pairs.entries(state)[0];
        const Dfa::State &from = left.states[of_left];
        const Dfa::State &other = of_right == kOutside ? none : right.states[of_right];
        work.spend(kStepsOfState + from.edges.size() + other.edges.size());
        Dfa::State made;
        made.accepts = from.accepts && other.accepts == in_right;
        const auto lead = [&](unsigned low, unsigned high, uint32_t target, uint32_t outside) {
            if (low <= high && (!in_right || outside != kOutside)) {
                made.edges.push_back({static_cast<uint8_t>(low), static_cast<uint8_t>(high),
                                      pairs.number_of({{target, outside}})});
            }
        };
        for (const Dfa::Edge &edge : from.edges) {
            unsigned next = edge.low; // 256 after the last byte
            for (const Dfa::Edge &against : other.edges) {
                const unsigned low = std::max<unsigned>(against.low, next);
                const unsigned high = std::min(against.high, edge.high);
                if (low <= high) {
                    if (low > next) {
                        lead(next, low - 1, edge.target, kOutside);
                    }
                    lead(low, high, edge.target, against.target);
                    next = high + 1;
                }
            }
            lead(next, edge.high, edge.target, kOutside);
        }
        result.states.push_back(std::move(made));
    }
    return result;
}

void Intervals::add(uint8_t low, uint8_t high, uint32_t index) {
    ranges_.push_back({low, high, index});
}

const std::vector<Intervals::Interval> &Intervals::split(Work &work) {
    bool begins[257] = {};
    for (const Range &each : ranges_) {
        begins[each.low] = true;
        begins[each.high + 1] = true;
    }
    uint32_t of_byte[257] = {};
    for (unsigned byte = 0; byte < 256; ++byte) {
        if (begins[byte] || byte == 0) {
            intervals_.push_back({static_cast<uint8_t>(byte), 0, {}});
        }
        intervals_.back().high = static_cast<uint8_t>(byte);
        of_byte[byte] = static_cast<uint32_t>(intervals_.size() - 1);
    }
    for (const Range &each : ranges_) {
        work.spend(1 + of_byte[each.high] - of_byte[each.low]);
        for (uint32_t i = of_byte[each.low]; i <= of_byte[each.high]; ++i) {
            intervals_[i].indices.push_back(each.index);
        }
    }
    std::erase_if(intervals_, [](const Interval &each) { return each.indices.empty(); });
    return intervals_;
}

} // namespace stasis::constraint
