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
}

uint16_t Settings::index_of_sampling(TokenLog &log) {
    constexpr size_t most = UINT16_MAX; // one index is left for settings that have not drawn yet
    const auto find = [&] {
        const auto latest = std::find(samplings.rbegin(), samplings.rend(), sampling);
        return latest == samplings.rend() ? samplings.size()
                                          : static_cast<size_t>(samplings.rend() - latest) - 1;
    };
    size_t index = find();
    if (index >= most) {
        drop_unnamed(log);
        index = find();
    }
    if (index == samplings.size()) {
        if (index >= most) {
            fail(Status::full,
                 "session full: its tokens were drawn with %zu different sampling settings", index);
        }
        samplings.push_back(sampling);
    }
    return static_cast<uint16_t>(index);
}

} // namespace stasis
