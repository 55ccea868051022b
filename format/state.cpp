// The digest of a state, and the version of its sampling; see state.h.
#include "format/state.h"

#include <algorithm>

namespace stasis {

Digest state_digest(const State &state) {
    StateParts parts;
    parts.contract_core = state.contract.core;
    parts.contract_kv = state.contract.kv;
    parts.model = state.model.model;
    parts.position = state.log.size();
    std::vector<uint32_t> tokens;
    tokens.reserve(state.log.size());
    for (const TokenEntry &entry : state.log) {
        tokens.push_back(entry.token);
    }
    parts.tokens = Sha256().bytes(tokens.data(), tokens.size() * sizeof(uint32_t)).finish();
    for (const Eviction &eviction : state.evictions) {
        for (const PositionRange &range : eviction.ranges) {
            parts.evicted.push_back({eviction.position, range.begin, range.end});
        }
    }
    for (size_t group = 0; group < state.groups.size(); ++group) {
        parts.windows.push_back(state.groups[group].window);
        std::vector<Digest> &pages = parts.pages.emplace_back();
        for (const Page &page : state.pages[group]) {
            pages.push_back(page.digest);
        }
    }
    parts.hidden = state.hidden;
    return state_digest(parts);
}

uint32_t sampling_version(const std::vector<Sampling> &samplings) {
    const bool second = std::any_of(samplings.begin(), samplings.end(),
                                    [](const Sampling &s) { return s.v2 != SamplingV2(); });
    return second ? 2 : 1;
}

} // namespace stasis
