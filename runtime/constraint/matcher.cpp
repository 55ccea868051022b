// Walks the vocabulary's tree along the automaton; see matcher.h.
#include "runtime/constraint/matcher.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace stasis::constraint {

struct Matcher::Found {
    explicit Found(Places found) : places(std::move(found)) {}
    std::mutex mutex; // of all that follows
    Places places;
    std::unordered_map<Place, std::shared_ptr<const Mask>> masks;
};

Matcher::Matcher(std::shared_ptr<const Automaton> automaton,
                 std::shared_ptr<const Vocabulary> vocabulary, size_t places_bytes)
    : automaton_(std::move(automaton)), vocabulary_(std::move(vocabulary)),
      found_(std::make_shared<Found>(Places(automaton_))), places_bytes_(places_bytes) {
    place_ = found_->places.start();
}

bool Matcher::complete() const {
    const std::lock_guard lock(found_->mutex);
    return found_->places.accepts(place_);
}

bool Matcher::take(std::string_view bytes) {
    std::unique_lock lock(found_->mutex);
    std::vector<Place> path = {place_, place_}; // where it was, where it is
    for (const char byte : bytes) {
        path[1] = found_->places.next(path[1], static_cast<uint8_t>(byte));
        if (path[1] == Places::kDead) {
            return false;
        }
        if (found_->places.bytes() > places_bytes_) {
            forget(path, lock);
            place_ = path[0];
        }
    }
    place_ = path[1];
    return true;
}

// Goes on with places of its own that know these alone. Copies keep what they have.
void Matcher::forget(std::vector<Place> &path, std::unique_lock<std::mutex> &lock) {
    auto fresh = std::make_shared<Found>(found_->places.keeping(path));
    // What is deeply nested needs more than the limit; it may then grow by as much again.
    places_bytes_ = std::max(places_bytes_, 2 * fresh->places.bytes());
    lock = std::unique_lock(fresh->mutex);
    found_ = std::move(fresh);
}

std::shared_ptr<const Mask> Matcher::mask(const Watch &watch) {
    std::unique_lock lock(found_->mutex);
    const auto known = found_->masks.find(place_);
    if (known != found_->masks.end()) {
        return known->second;
    }
    auto mask = std::make_shared<const Mask>(walk(lock, watch));
    const size_t bytes = mask->size() * sizeof(uint64_t) + 64;
    if ((found_->masks.size() + 1) * bytes > kMasksBytes) {
        found_->masks.clear();
    }
    found_->masks.emplace(place_, mask);
    return mask;
}

Mask Matcher::walk(std::unique_lock<std::mutex> &lock, const Watch &watch) {
    constexpr size_t kNodesBetweenLooks = 16;
    Mask mask((vocabulary_->size() + 63) / 64, 0);
    const auto allow = [&](uint32_t token) { mask[token / 64] |= uint64_t{1} << token % 64; };
    if (found_->places.accepts(place_)) {
        for (const uint32_t token : vocabulary_->end_tokens()) {
            allow(token);
        }
    }
    std::vector<Place> path(vocabulary_->depth() + 1, Places::kDead);
    path[0] = place_;
    const std::vector<Vocabulary::Node> &nodes = vocabulary_->nodes();
    size_t visited = 0;
    for (size_t i = 0; i < nodes.size();) {
        if (++visited % kNodesBetweenLooks == 0) {
            watch.look(i, nodes.size());
        }
        const Vocabulary::Node &node = nodes[i];
        const Place next = found_->places.next(path[node.depth], node.byte);
        if (next == Places::kDead) {
            i = node.after;
            continue;
        }
        for (uint32_t token = node.token; token != Vocabulary::kNone;
             token = vocabulary_->next_alike(token)) {
            allow(token);
        }
        path[node.depth + size_t{1}] = next;
        ++i;
        if (found_->places.bytes() > places_bytes_) {
            path.resize(node.depth + size_t{2});
            forget(path, lock);
            place_ = path[0];
            path.resize(vocabulary_->depth() + 1, Places::kDead);
        }
    }
    return mask;
}

} // namespace stasis::constraint
