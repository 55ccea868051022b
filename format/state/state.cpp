// The digest of a state, the chunks of its device profile, and the version of its sampling; see
// state.h.
#include "format/state/state.h"

#include <algorithm>
#include <bit>
#include <type_traits>

namespace stasis {

void Profile::cut(uint64_t position) noexcept {
    while (!chunks.empty() && chunks.back().begin >= position) {
        chunks.pop_back();
    }
    if (!chunks.empty() && chunks.back().end() > position) {
        chunks.back().rows = static_cast<uint32_t>(position - chunks.back().begin);
    }
    foreign = std::min(foreign, position);
}

void Profile::go_on_under(const std::string &other) {
    if (id == other) {
        return;
    }
    id = other;
    foreign = chunks.empty() ? foreign : chunks.back().end();
    chunks.clear();
}

const ProfileChunk *Profile::chunk_of(uint64_t position) const {
    const auto behind = std::upper_bound(
        chunks.begin(), chunks.end(), position,
        [](uint64_t value, const ProfileChunk &chunk) { return value < chunk.begin; });
    if (behind == chunks.begin() || std::prev(behind)->end() <= position) {
        return nullptr;
    }
    return &*std::prev(behind);
}

Digest state_digest(const State &state) {
    StateParts parts;
    parts.contract_core = state.contract.core;
    parts.contract_kv = state.contract.kv;
    parts.contract_recurrent = state.contract.recurrent;
    parts.contract_experts = state.contract.experts;
    parts.model = state.model.model;
    parts.profile = state.profile.id;
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
    if (!state.states.empty()) {
        parts.recurrent = state.states.back().digest;
    }
    parts.hidden = state.hidden;
    return state_digest(parts);
}

uint64_t sampling_hash(const Sampling &sampling) { // of each token drawn: allocates nothing
    uint64_t hash = 0;
    const auto mix = [&](auto value) {
        uint64_t bits;
        if constexpr (std::is_floating_point_v<decltype(value)>) {
            bits = std::bit_cast<uint64_t>(static_cast<double>(value) + 0.0); // -0 equals 0
        } else {
            bits = value;
        }
        hash = (hash ^ bits) * 0x9E3779B97F4A7C15U;
        hash ^= hash >> 32;
    };
    const auto add = [&](const auto &...values) { (mix(values), ...); };
    const SamplingV2 &v2 = sampling.v2;
    add(sampling.seed, sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p,
        sampling.repetition_penalty, sampling.frequency_penalty, sampling.presence_penalty,
        sampling.penalty_window, v2.typical_p, v2.top_n_sigma, v2.xtc_probability, v2.xtc_threshold,
        v2.dry_multiplier, v2.dry_base, v2.dry_allowed_length, v2.dry_range, v2.min_keep);
    for (const auto &[token, value] : sampling.bias) {
        add(token, value);
    }
    for (const uint32_t token : v2.dry_breakers) {
        add(token);
    }
    if (const Constraint *constraint = sampling.v3.constraint.value.get()) {
        const size_t size =
            constraint->text.size(); // the text itself may be long, and differs less
        add(constraint->kind, size);
    }
    if (const std::string *allowed = sampling.v3.allowed.value.get()) {
        const size_t hash = std::hash<std::string>()(*allowed);
        add(hash);
    }
    return hash;
}

bool uses_v2(const std::vector<Sampling> &samplings) {
    return std::any_of(samplings.begin(), samplings.end(),
                       [](const Sampling &s) { return s.v2 != SamplingV2(); });
}

bool uses_v3(const std::vector<Sampling> &samplings) {
    return std::any_of(samplings.begin(), samplings.end(),
                       [](const Sampling &s) { return s.v3 != SamplingV3(); });
}

uint32_t sampling_version(const std::vector<Sampling> &samplings) {
    return uses_v3(samplings) ? 3 : uses_v2(samplings) ? 2 : 1;
}

} // namespace stasis
