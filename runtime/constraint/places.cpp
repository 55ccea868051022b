// Finds places: the closure over ends and calls of rules; see places.h.
#include "runtime/constraint/places.h"

#include <algorithm>
#include <map>
#include <set>

#include "format/state/error.h"

namespace stasis::constraint {

namespace {

constexpr uint32_t kMark = UINT32_MAX; // the state of a place's first entry, which is none

} // namespace

// A place while its entries are found.
struct Places::Closing {
    Entries open;                          // to be visited
    std::set<Entry> all;                   // visited
    Entries closed;                        // those from which a byte leads on
    std::map<Rule, std::set<Entry>> calls; // where a rule that begins here goes on
    bool accepts = false;
    size_t ways = 0;

    void count(size_t more) {
        ways += more;
        if (ways > kWaysMax) {
            fail(Status::unsupported,
                 "the constraint allows the text so far in more than %zu ways at once", kWaysMax);
        }
    }
};

Places::Places(std::shared_ptr<const Automaton> automaton, Bare)
    : automaton_(std::move(automaton)), frames_(std::make_unique<Numbered<Entry>>()),
      places_(std::make_unique<Numbered<Entry>>()) {
    frame_of({});
    place_of(false, {});
}

Places::Places(std::shared_ptr<const Automaton> automaton) : Places(std::move(automaton), Bare{}) {
    start_ = place_after({{automaton_->starts[automaton_->root], 0}}, automaton_->allows_empty);
}

uint32_t Places::frame_of(Entries entries) {
    const size_t size = entries.size();
    const uint32_t known = frames_->size(), frame = frames_->number_of(std::move(entries));
    bytes_ += frame == known ? 64 + size * sizeof(Entry) : 0;
    return frame;
}

Place Places::place_of(bool accepts, Entries entries) {
    entries.insert(entries.begin(), Entry{kMark, accepts ? 1 : 0});
    const size_t size = entries.size();
    if (rows_.size() == rows_.capacity()) { // first, so that nothing fails after a place is known
        rows_.reserve(2 * rows_.size() + 16);
    }
    const Place place = places_->number_of(std::move(entries));
    if (place == rows_.size()) {
        rows_.emplace_back().fill(place == kDead ? kDead : kUnknown);
        bytes_ += sizeof rows_[0] + 64 + size * sizeof(Entry);
    }
    return place;
}

// Completes entries that a byte has led to, or the start: by the ends of their rules, then by the
// rules called, each of which has one frame for all who call it here. No rule ends where it begins,
// and rules called there come later in the order, so each is complete when it is its turn.
Place Places::place_after(Entries entries, bool accepts) {
    Closing closing;
    closing.accepts = accepts;
    closing.open = std::move(entries);
    while (true) {
        while (!closing.open.empty()) {
            const Entry entry = closing.open.back();
            closing.open.pop_back();
            visit(entry, closing);
        }
        if (closing.calls.empty()) {
            break;
        }
        const auto first = closing.calls.begin();
        const uint32_t frame = frame_of(Entries(first->second.begin(), first->second.end()));
        closing.open.emplace_back(automaton_->starts[first->first], frame);
        closing.calls.erase(first);
    }
    std::sort(closing.closed.begin(), closing.closed.end());
    return place_of(closing.accepts, std::move(closing.closed));
}

void Places::visit(Entry entry, Closing &closing) const {
    if (!closing.all.insert(entry).second) {
        return;
    }
    closing.count(1);
    const auto [number, frame] = entry;
    const Dfa::State &state = automaton_->states[number];
    if (!state.edges.empty()) {
        closing.closed.push_back(entry);
    }
    if (state.accepts && frame == 0) {
        closing.accepts = true;
    } else if (state.accepts) {
        const Entries &after = frames_->entries(frame);
        closing.open.insert(closing.open.end(), after.begin(), after.end());
    }
    for (const Dfa::Call &each : state.calls) {
        call(each, frame, closing);
    }
}

// A call that is the last of its rule goes on where the rule does, so that a list costs no frame
// for each of its items.
void Places::call(const Dfa::Call &call, uint32_t frame, Closing &closing) const {
    std::set<Entry> &after = closing.calls[call.rule];
    const size_t known = after.size();
    if (frame != 0 && is_end(automaton_->states[call.target])) {
        const Entries &further = frames_->entries(frame);
        after.insert(further.begin(), further.end());
    } else {
        after.insert({call.target, frame});
    }
    closing.count(after.size() - known);
}

// Finds the place after a byte, which is that after all bytes around it that no edge tells from it.
// Others are not looked at: a tree of tokens asks for few bytes of most places, and each may take
// as long as a grammar is ambiguous.
Place Places::find_next(Place place, uint8_t byte) {
    uint8_t low = 0, high = 255;
    Entries reached;
    const Entries &entries = places_->entries(place);
    for (size_t i = 1; i < entries.size(); ++i) {
        for (const Dfa::Edge &edge : automaton_->states[entries[i].first].edges) {
            if (edge.high < byte) {
                low = std::max(low, static_cast<uint8_t>(edge.high + 1));
            } else if (edge.low > byte) {
                high = std::min(high, static_cast<uint8_t>(edge.low - 1));
            } else {
                low = std::max(low, edge.low);
                high = std::min(high, edge.high);
                reached.emplace_back(edge.target, entries[i].second);
            }
        }
    }
    const Place found = reached.empty() ? kDead : place_after(std::move(reached), false);
    std::fill(rows_[place].begin() + low, rows_[place].begin() + high + 1, found);
    return found;
}

Places Places::keeping(std::vector<Place> &places) const {
    Places kept(automaton_, Bare{});
    std::vector<uint32_t> needed; // frames, of these places and of each other
    std::vector<bool> found(frames_->size(), false);
    const auto need = [&](const Entries &entries, size_t begin) {
        for (size_t i = begin; i < entries.size(); ++i) {
            if (!found[entries[i].second]) {
                found[entries[i].second] = true;
                needed.push_back(entries[i].second);
            }
        }
    };
    for (const Place place : places) {
        need(places_->entries(place), 1);
    }
    for (size_t i = 0; i < needed.size(); ++i) {
        need(frames_->entries(needed[i]), 0);
    }
    std::vector<uint32_t> frames(frames_->size(), 0); // their numbers there
    const auto renumbered = [&](const Entries &entries, size_t begin) {
        Entries result(entries.begin() + static_cast<ptrdiff_t>(begin), entries.end());
        for (Entry &each : result) {
            each.second = frames[each.second];
        }
        std::sort(result.begin(), result.end());
        return result;
    };
    std::sort(needed.begin(), needed.end()); // the entries of a frame have older ones
    for (const uint32_t frame : needed) {
        frames[frame] = kept.frame_of(renumbered(frames_->entries(frame), 0));
    }
    for (Place &place : places) {
        place = kept.place_of(accepts(place), renumbered(places_->entries(place), 1));
    }
    // The start is not kept but found again.
    kept.start_ =
        kept.place_after({{automaton_->starts[automaton_->root], 0}}, automaton_->allows_empty);
    return kept;
}

} // namespace stasis::constraint
