// Chooses the checkpoints that a timeline keeps; see recurrent_states.h.
#include "runtime/timeline/recurrent_states.h"

#include <algorithm>
#include <cassert>

#include "runtime/kv/page_pool.h"

namespace stasis {

// Every spacing is a power of two times the one before, so that what is kept further away is a part
// of what was kept nearer. The first spacing reaches one checkpoint further than kCheckpointNear,
// because the first position that is near follows from the checkpoint before it.
bool keeps_checkpoint(uint64_t position, uint64_t end) {
    assert(position <= end);
    uint64_t spacing = kCheckpointPositions;
    if (end - position >= kCheckpointNear + kCheckpointPositions) {
        spacing *= 4; // four checkpoints from the distance kCheckpointNear to twice that
        for (uint64_t reach = 2 * kCheckpointNear; end - position >= reach + spacing; reach *= 2) {
            spacing *= 2;
        }
    }
    return position % spacing == 0;
}

uint64_t RecurrentStates::nearest(uint64_t most) const {
    const auto after =
        std::upper_bound(states_.begin(), states_.end(), most,
                         [](uint64_t value, const Checkpoint &c) { return value < c.position; });
    return after == states_.begin() ? 0 : std::prev(after)->position;
}

StateRef RecurrentStates::at(uint64_t position) const {
    const auto here =
        std::lower_bound(states_.begin(), states_.end(), position,
                         [](const Checkpoint &c, uint64_t value) { return c.position < value; });
    return here == states_.end() || here->position != position ? StateRef() : here->state;
}

// Drops the checkpoint whose loss costs least: after it, the gap around it is smallest in
// proportion to its distance from the end. So the rest stays dense near the end and sparse before.
// One that a fork or the prefix cache holds as well gives no memory back.
bool RecurrentStates::drop_one(uint64_t start) noexcept {
    const uint64_t end = states_.empty() ? 0 : states_.back().position;
    size_t least = states_.size();
    double least_cost = 0;
    for (size_t i = 0; i + 1 < states_.size(); ++i) {
        if (states_[i].position == start || !states_[i].state.unique()) {
            continue;
        }
        const uint64_t before = i == 0 ? 0 : states_[i - 1].position;
        const auto gap = static_cast<double>(states_[i + 1].position - before);
        const double cost = gap / static_cast<double>(end - states_[i].position);
        if (least == states_.size() || cost < least_cost) {
            least = i;
            least_cost = cost;
        }
    }
    if (least == states_.size()) {
        return false;
    }
    states_.erase(states_.begin() + static_cast<ptrdiff_t>(least));
    return true;
}

bool RecurrentStates::give_up_one(uint64_t start, PagePool &pages) noexcept {
    return pages.drop_oldest_state(false) || drop_one(start) || pages.drop_oldest_state(true);
}

StateRef RecurrentStates::take(uint64_t start, PagePool &pages) {
    while (pool_->full() && give_up_one(start, pages)) {
    }
    for (;;) {
        try {
            return pool_->take();
        } catch (const Error &) { // what a checkpoint gives back may serve
            if (!give_up_one(start, pages)) {
                throw;
            }
        }
    }
}

StateRef RecurrentStates::take_spare(uint64_t start, PagePool &pages) {
    while (pool_->full()) {
        if (!give_up_one(start, pages)) {
            return {};
        }
    }
    return take(start, pages);
}

void RecurrentStates::add(uint64_t position, StateRef state, uint64_t start) {
    assert(states_.empty() || states_.back().position < position);
    states_.push_back({position, std::move(state)}); // nothing below can fail
    if (states_.size() > 1) {
        const auto before = std::prev(states_.end(), 2);
        if (before->position != start && !keeps_checkpoint(before->position, position)) {
            states_.erase(before);
        }
    }
}

void RecurrentStates::cut(uint64_t position) noexcept {
    while (!states_.empty() && states_.back().position > position) {
        states_.pop_back();
    }
}

void RecurrentStates::thin(uint64_t end) noexcept {
    std::erase_if(states_, [end](const Checkpoint &c) {
        return c.position != end && !keeps_checkpoint(c.position, end);
    });
}

} // namespace stasis
