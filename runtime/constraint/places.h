// Where texts have led in an automaton: every place is found once and then known by its number, so
// that a byte costs a look into a table. A place is a set of states, each with a stack of where the
// automaton goes on after a rule; stacks that have the same rule on top since the same byte are
// one, so that a grammar with many readings of a text costs no more than the square of its length.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/constraint/automaton.h"
#include "runtime/constraint/numbered.h"

namespace stasis::constraint {

// A place's number, good for the Places that gave it.
using Place = uint32_t;

class Places {
  public:
    static constexpr Place kDead = 0;        // no text that begins so is allowed
    static constexpr size_t kWaysMax = 1024; // readings of a text at a place

    explicit Places(std::shared_ptr<const Automaton> automaton);
    Places(Places &&other) noexcept;
    Places &operator=(Places &&other) = delete;
    ~Places();

    Place start() const { return start_; }
    // Returns the place after one more byte. Throws Error(unsupported) where the text can be read
    // in more than kWaysMax ways at once.
    Place next(Place place, uint8_t byte) {
        const Place found = rows_[place][byte];
        return found != kUnknown ? found : find_next(place, byte);
    }
    // Whether the text is complete.
    bool accepts(Place place) const { return places_->entries(place)[0].second != 0; }
    // Bytes of memory that it holds, about.
    size_t bytes() const { return bytes_; }
    // Returns new Places that know these alone, whose numbers it replaces.
    Places keeping(std::vector<Place> &places) const;

  private:
    static constexpr Place kUnknown = UINT32_MAX;
    using Entry = std::pair<uint32_t, uint32_t>; // a state and a frame
    using Entries = std::vector<Entry>;
    struct Closing;
    struct Seen;

    struct Bare {};
    Places(std::shared_ptr<const Automaton> automaton, Bare);
    Place find_next(Place place, uint8_t byte);
    Place place_of(bool accepts, Entries entries);
    Place place_after(Entries entries, bool accepts);
    void visit(Entry entry, Closing &closing);
    void call(const Dfa::Call &call, uint32_t frame, Closing &closing);
    uint32_t frame_of(Entries entries);

    std::shared_ptr<const Automaton> automaton_;
    // Of each frame the entries where it goes on, whose frames are older. Frame 0 is the end of the
    // text.
    std::unique_ptr<Numbered<Entry>> frames_;
    std::unique_ptr<Numbered<Entry>> places_; // after a mark that says whether it accepts
    std::vector<std::array<Place, 256>> rows_;
    std::unique_ptr<Seen> seen_;
    size_t bytes_ = 0;
    Place start_ = kDead;
};

} // namespace stasis::constraint
