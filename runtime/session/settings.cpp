// The settings that drew a session's tokens; see settings.h.
#include "runtime/session/settings.h"

#include <algorithm>

namespace stasis {

// Removes settings that no entry of the log names, as a save does, so that rewound tokens leave no
// settings. Strong guarantee.
void Settings::drop_unnamed(TokenLog &log) {
    std::vector<bool> named(samplings.size());
    for (uint64_t i = 0; i < log.size(); ++i) {
        if (const TokenEntry entry = log[i]; entry.source == TokenSource::sampled) {
            named[entry.sampling] = true;
        }
    }
    // Named settings move up in order, and the entries are renumbered in a copy of the log.
    std::vector<Sampling> kept;
    std::vector<uint16_t> places(samplings.size()); // in `kept`
    for (size_t i = 0; i < samplings.size(); ++i) {
        if (named[i]) {
            places[i] = static_cast<uint16_t>(kept.size());
            kept.push_back(samplings[i]);
        }
    }
    TokenLog renumbered = log;
    for (uint64_t i = 0; i < renumbered.size(); ++i) {
        const TokenEntry entry = renumbered[i];
        if (entry.source == TokenSource::sampled && places[entry.sampling] != entry.sampling) {
            renumbered.mutate(i).sampling = places[entry.sampling];
        }
    }
    log = std::move(renumbered);
    samplings = std::move(kept);
    by_hash_.clear();
    sorted_ = 0;
}

// Brings the list up to the settings, of which a load has set all at once, and a rewind to 0 has
// removed all. New ones stay at its end until they are many enough to be merged.
void Settings::follow() {
    constexpr size_t kUnsortedMax = 256;
    if (by_hash_.size() > samplings.size()) {
        by_hash_.clear();
        sorted_ = 0;
    }
    for (size_t index = by_hash_.size(); index < samplings.size(); ++index) {
        by_hash_.emplace_back(sampling_hash(samplings[index]), static_cast<uint32_t>(index));
    }
    if (by_hash_.size() - sorted_ > kUnsortedMax) {
        const auto behind = by_hash_.begin() + static_cast<ptrdiff_t>(sorted_);
        std::sort(behind, by_hash_.end());
        std::inplace_merge(by_hash_.begin(), behind, by_hash_.end());
        sorted_ = by_hash_.size();
    }
}

// Returns the index of the settings in force; that behind the last if they have drawn nothing.
size_t Settings::find() const {
    const uint64_t hash = sampling_hash(sampling);
    const auto is_it = [&](const auto &each) {
        return each.first == hash && samplings[each.second] == sampling;
    };
    const auto behind = by_hash_.begin() + static_cast<ptrdiff_t>(sorted_);
    auto next = std::lower_bound(by_hash_.begin(), behind, std::pair(hash, uint32_t{0}));
    for (; next != behind && next->first == hash; ++next) {
        if (is_it(*next)) {
            return next->second;
        }
    }
    if (next = std::find_if(behind, by_hash_.end(), is_it); next != by_hash_.end()) {
        return next->second;
    }
    return samplings.size();
}

uint16_t Settings::index_of_sampling(TokenLog &log) {
    constexpr size_t most = UINT16_MAX; // one index is left for settings that have not drawn yet
    follow();
    size_t index = find();
    if (index >= most) {
        drop_unnamed(log);
        follow();
        index = find();
    }
    if (index == samplings.size()) {
        if (index >= most) {
            fail(Status::full,
                 "session full: its tokens were drawn with %zu different sampling settings", index);
        }
        // The list first: follow drops what has no settings if those find no memory.
        by_hash_.emplace_back(sampling_hash(sampling), static_cast<uint32_t>(index));
        samplings.push_back(sampling);
    }
    return static_cast<uint16_t>(index);
}

} // namespace stasis
