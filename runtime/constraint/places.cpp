// Finds places: the closure over ends and calls of rules; see places.h.
#include "runtime/constraint/places.h"

#include <algorithm>
#include <array>
#include <map>

#include "format/state/error.h"

namespace stasis::constraint {

namespace {

constexpr uint32_t kMark = UINT32_MAX; // the state of a place's first entry, which is none
constexpr Rule kVisited = UINT32_MAX;  // no rule: the entries visited

} // namespace

// What a place's closure has met already: entries visited, and those where rules called go on. All
// of them are counted as ways, so that half of the table is enough.
struct Places::Seen {
    struct Slot {
        uint32_t closure, rule;
        Entry entry;
    };
    std::array<Slot, 2048> slots{};
    uint32_t closure = 0; // older slots are empty
    size_t ways = 0;

    void begin() {
        ways = 0;
        if (++closure == 0) {
            slots.fill({});
            closure = 1;
        }
    }
    // Returns whether it is new.
    bool insert(Rule rule, Entry entry) {
        static_assert(kWaysMax + 1 < std::tuple_size_v<decltype(slots)>);
        uint64_t hash = (uint64_t{entry.first} << 32U | entry.second) * 0x9E3779B97F4A7C15U;
        hash = (hash ^ hash >> 32U ^ rule) * 0xD6E8FEB86659FD93U;
        for (size_t i = hash >> 53U;; i = (i + 1) % slots.size()) {
            Slot &slot = slots[i];
            if (slot.closure != closure) {
                slot = {closure, rule, entry};
                break;
            }
            if (slot.rule == rule && slot.entry == entry) {
                return false;
            }
        }
        if (++ways > kWaysMax) {
            fail(Status::unsupported,
                 "the constraint allows the text so far in more than %zu ways at once", kWaysMax);
        }
        return true;
    }
};

// A place while its entries are found.
struct Places::Closing {
    Entries open;                  // to be visited
    Entries closed;                // those from which a byte leads on
    std::map<Rule, Entries> calls; // where a rule that begins here goes on
    bool accepts = false;
};

Places::Places(std::shared_ptr<const Automaton> automaton, Bare)
    : automaton_(std::move(automaton)), frames_(std::make_unique<Numbered<Entry>>()),
      places_(std::make_unique<Numbered<Entry>>()), seen_(std::make_unique<Seen>()) {
    frame_of({});
    place_of(false, {});
}

Places::Places(std::shared_ptr<const Automaton> automaton) : Places(std::move(automaton), Bare{}) {
    start_ = place_after({{automaton_->starts[automaton_->root], 0}}, automaton_->allows_empty);
}

Places::Places(Places &&other) noexcept = default;
Places::~Places() = default;

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
    seen_->begin();
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
        std::sort(first->second.begin(), first->second.end());
        const uint32_t frame = frame_of(std::move(first->second));
        closing.open.emplace_back(automaton_->starts[first->first], frame);
        closing.calls.erase(first);
    }
    std::sort(closing.closed.begin(), closing.closed.end());
    return place_of(closing.accepts, std::move(closing.closed));
}

void Places::visit(Entry entry, Closing &closing) {
    if (!seen_->insert(kVisited, entry)) {
        return;
    }
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
void Places::call(const Dfa::Call &call, uint32_t frame, Closing &closing) {
    Entries &after = closing.calls[call.rule];
    const auto add = [&](Entry entry) {
        if (seen_->insert(call.rule, entry)) {
            after.push_back(entry);
        }
    };
    if (frame != 0 && is_end(automaton_->states[call.target])) {
        for (const Entry &each : frames_->entries(frame)) {
            add(each);
        }
    } else {
        add({call.target, frame});
    }
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
