// The conditions on a State, one function for each part; see check.h. Each check_ function throws
// Error(status) for the first condition that does not hold.
#include "format/check.h"

#include <algorithm>
#include <cassert>
#include <cfloat>
#include <cmath>
#include <optional>
#include <utility>

#include "format/constants.h"
#include "format/evictions.h"
#include "format/host_data.h"
#include "format/pages.h"
#include "format/recurrent.h"
#include "format/section.h"
#include "format/state/bf16.h"
#include "format/state/decimal.h"
#include "format/state/token_set.h"

namespace stasis::format {

namespace {

void check_size(const char *name, uint32_t value, uint32_t max, Status status) {
    if (value == 0 || value > max) {
        fail(status, "%s is %u, expected 1 to %u", name, value, max);
    }
}

// Sizes that are the state's would say in another way that a group has none of its own.
void check_group_sizes(const State &state, size_t group, Status status) {
    const LayerGroup &own = state.groups[group];
    if (own.kv_heads == 0 && own.head_dim == 0) {
        return;
    }
    check_size("number of KV heads of a layer group", own.kv_heads, kGeometryMax, status);
    check_size("head_dim of a layer group", own.head_dim, kGeometryMax, status);
    if (own.kv_heads == state.kv_heads && own.head_dim == state.head_dim) {
        fail(status, "layer group %zu: its own sizes, %u KV heads of %u, are those of the state",
             group, own.kv_heads, own.head_dim);
    }
}

// Checks the layers that use the keys and values of others, and marks them.
void check_sharing(const State &state, std::vector<bool> &seen, Status status) {
    for (size_t i = 0; i < state.sharing.size(); ++i) {
        const uint32_t layer = state.sharing[i];
        if (layer >= state.layers || seen[layer] || (i > 0 && layer < state.sharing[i - 1])) {
            fail(status,
                 "sharing layers: layer %u is out of range, twice, out of order or "
                 "recurrent",
                 layer);
        }
        seen[layer] = true;
    }
    if (!state.sharing.empty() && state.groups.empty()) {
        fail(status, "sharing layers: %zu of them, but no layer has keys and values",
             state.sharing.size());
    }
}

void check_groups(const State &state, Status status) {
    std::vector<bool> seen(state.layers);
    for (const uint32_t layer : state.recurrent.layers) {
        seen[layer] = true;
    }
    check_sharing(state, seen, status);
    const size_t others = state.recurrent.layers.size() + state.sharing.size();
    size_t count = others;
    for (size_t group = 0; group < state.groups.size(); ++group) {
        const std::vector<uint32_t> &layers = state.groups[group].layers;
        for (size_t i = 0; i < layers.size(); ++i) {
            if (layers[i] >= state.layers || seen[layers[i]] ||
                (i > 0 && layers[i] < layers[i - 1])) {
                fail(status,
                     "layer group %zu: layer %u is out of range, twice, out of order, recurrent or "
                     "sharing",
                     group, layers[i]);
            }
            seen[layers[i]] = true;
        }
        if (layers.empty()) {
            fail(status, "layer group %zu: no layers", group);
        }
        check_group_sizes(state, group, status);
        count += layers.size();
    }
    if (count != state.layers) {
        fail(status, "layer groups hold %zu layers of %u, %zu are recurrent, %zu sharing",
             count - others, state.layers, state.recurrent.layers.size(), state.sharing.size());
    }
}

void check_log(const State &state, Status status) {
    for (size_t i = 0; i < state.log.size(); ++i) {
        const TokenEntry &entry = state.log[i];
        if (entry.token >= state.vocabulary) {
            fail(status, "log, position %zu: token %u, the vocabulary has %u", i, entry.token,
                 state.vocabulary);
        }
        constexpr uint8_t known =
            TokenEntry::kTurnStart | TokenEntry::kReplyPrompt | TokenEntry::kRoleMask;
        if (entry.source > TokenSource::sampled || entry.role() > Role::other ||
            (entry.turn & ~known) != 0) {
            fail(status, "log, position %zu: source %u, turn byte %02x", i,
                 static_cast<uint32_t>(entry.source), static_cast<uint32_t>(entry.turn));
        }
        const bool sampled = entry.source == TokenSource::sampled;
        if (sampled ? entry.sampling >= state.samplings.size() : entry.sampling != 0) {
            fail(status, "log, position %zu: sampling settings %u of %zu, source %u", i,
                 entry.sampling, state.samplings.size(), static_cast<uint32_t>(entry.source));
        }
    }
    if (state.capacity < state.log.size()) {
        fail(status, "capacity is %llu, the log has %zu tokens",
             static_cast<Number>(state.capacity), state.log.size());
    }
}

void check_numbers(const State &state, Status status) {
    each_session_number([&](const auto &number) {
        if (state.*number.member > number.most) {
            fail(status, "%s is %llu, expected 0 to %llu", number.title,
                 static_cast<Number>(state.*number.member), static_cast<Number>(number.most));
        }
    });
}

// Checks a pair of token and number: the token is in the vocabulary, and the number is not NaN.
void check_value(const char *name, std::pair<uint32_t, float> pair, const State &state,
                 Status status) {
    if (pair.first >= state.vocabulary || std::isnan(pair.second)) {
        fail(status, "%s: token %u (the vocabulary has %u) with value %s", name, pair.first,
             state.vocabulary, decimal(pair.second).c_str());
    }
}

// Returns what the sampler takes the value for: a denormal counts as zero (C2). The library's own
// threads compute so anyhow; a file is judged alike on one that keeps denormals.
float flushed(float value) {
    return std::fabs(value) < FLT_MIN ? 0.0F : value;
}

void check_range(const char *name, float value, float lowest, float highest, Status status) {
    // A comparison with NaN is false, so the negated condition refuses NaN too.
    if (!(flushed(value) >= lowest && value <= highest)) {
        fail(status, "sampling settings: %s is %s, expected a number from %s to %s", name,
             decimal(value).c_str(), decimal(lowest).c_str(), decimal(highest).c_str());
    }
}

// Ranges are those that the sampler accepts (C7).
void check_sampling_v2(const SamplingV2 &v2, const State &state, Status status) {
    check_range("typical_p", v2.typical_p, FLT_MIN, 1.0F, status);
    check_range("top_n_sigma", v2.top_n_sigma, 0.0F, FLT_MAX, status);
    check_range("xtc_probability", v2.xtc_probability, 0.0F, 1.0F, status);
    check_range("xtc_threshold", v2.xtc_threshold, FLT_MIN, 0.5F, status);
    check_range("dry_multiplier", v2.dry_multiplier, 0.0F, FLT_MAX, status);
    check_range("dry_base", v2.dry_base, 1.0F, FLT_MAX, status);
    if (v2.dry_allowed_length == 0 || v2.min_keep == 0) {
        fail(status, "sampling settings: %s is 0, expected at least 1",
             v2.min_keep == 0 ? "min_keep" : "dry_allowed_length");
    }
    for (size_t i = 0; i < v2.dry_breakers.size(); ++i) {
        const uint32_t token = v2.dry_breakers[i];
        if (token >= state.vocabulary || (i > 0 && token <= v2.dry_breakers[i - 1])) {
            fail(status, "sampling settings: dry_breakers: token %u is out of order or range",
                 token);
        }
    }
}

void check_sampling_v3(const SamplingV3 &v3, const State &state, Status status) {
    if (const Constraint *constraint = v3.constraint.value.get()) {
        const size_t most = constraint->kind == Constraint::kJson ? 0 : Constraint::kTextMax;
        if (constraint->kind == 0 || constraint->kind > Constraint::kKindMax ||
            constraint->text.size() > most) {
            fail(status, "sampling settings: a constraint of kind %u with a text of %zu bytes",
                 constraint->kind, constraint->text.size());
        }
    }
    if (const std::string *allowed = v3.allowed.value.get()) {
        if (!is_token_set(*allowed, state.vocabulary)) {
            fail(status, "sampling settings: allowed tokens, %zu bytes, are no set of any",
                 allowed->size());
        }
    }
}

void check_samplings(const State &state, Status status) {
    if (state.samplings.size() > kSamplingsMax || state.sampling >= state.samplings.size()) {
        fail(status, "sampling settings in force are %u of %zu (at most %zu)", state.sampling,
             state.samplings.size(), kSamplingsMax);
    }
    for (const Sampling &sampling : state.samplings) {
        // Ranges as in check_sampling_v2.
        check_range("temperature", sampling.temperature, 0.0F, FLT_MAX, status);
        check_range("top_p", sampling.top_p, FLT_MIN, 1.0F, status);
        check_range("min_p", sampling.min_p, 0.0F, 1.0F, status);
        check_range("repetition_penalty", sampling.repetition_penalty, FLT_MIN, FLT_MAX, status);
        check_range("frequency_penalty", sampling.frequency_penalty, -FLT_MAX, FLT_MAX, status);
        check_range("presence_penalty", sampling.presence_penalty, -FLT_MAX, FLT_MAX, status);
        for (size_t i = 0; i < sampling.bias.size(); ++i) {
            check_value("logit bias", sampling.bias[i], state, status);
            if (sampling.bias[i].second > FLT_MAX) {
                fail(status, "logit bias: token %u has a bias of infinity", sampling.bias[i].first);
            }
            if (i > 0 && sampling.bias[i].first <= sampling.bias[i - 1].first) {
                fail(status, "logit bias: token %u is out of order", sampling.bias[i].first);
            }
        }
        check_sampling_v2(sampling.v2, state, status);
        check_sampling_v3(sampling.v3, state, status);
    }
}

void check_pages(const State &state, Status status) {
    const uint64_t position = state.log.size();
    const uint64_t count = page_count(position, state.page_positions);
    if (state.pages.size() != state.groups.size()) {
        fail(status, "pages of %zu layer groups, expected %zu", state.pages.size(),
             state.groups.size());
    }
    for (size_t group = 0; group < state.pages.size(); ++group) {
        if (state.pages[group].size() != count) {
            fail(status, "layer group %zu: %zu pages, %llu positions take %llu", group,
                 state.pages[group].size(), static_cast<Number>(position),
                 static_cast<Number>(count));
        }
        for (uint64_t index = 0; index < count; ++index) {
            const uint32_t valid = page_valid(position, state.page_positions, index);
            if (state.pages[group][index].valid != valid) {
                fail(status, "page %llu of layer group %zu: %u valid slots, expected %u",
                     static_cast<Number>(index), group, state.pages[group][index].valid, valid);
            }
        }
    }
}

// Checks the id and the chunks of a device profile: chunks ascend, do not overlap, and none begins
// below the mark of foreign positions.
void check_profile(const State &state, Status status) {
    const Profile &profile = state.profile;
    const bool readable = std::all_of(profile.id.begin(), profile.id.end(),
                                      [](char c) { return c >= ' ' && c <= '~'; });
    if (!readable || profile.id.size() > kProfileIdMax) {
        fail(status, "device profile: its id, of %zu bytes, is none", profile.id.size());
    }
    if (profile.foreign > state.log.size() || (profile.id.empty() && !profile.chunks.empty())) {
        fail(status, "device profile: %zu chunks without an id, or a mark at %llu of %zu positions",
             profile.chunks.size(), static_cast<Number>(profile.foreign), state.log.size());
    }

    uint64_t end = profile.foreign;
    for (const ProfileChunk &chunk : profile.chunks) {
        if (chunk.begin < end || chunk.rows == 0 || chunk.rows > chunk.padded ||
            chunk.padded > kProfilePaddedMax || chunk.begin - end > UINT32_MAX ||
            chunk.begin > state.log.size() || chunk.rows > state.log.size() - chunk.begin) {
            fail(status,
                 "device profile: a chunk of %u rows of %u from position %llu on, in a log "
                 "of %zu",
                 chunk.rows, chunk.padded, static_cast<Number>(chunk.begin), state.log.size());
        }
        end = chunk.end();
    }
    // A pass ends at an eviction, so no chunk can contain the position of one except as its first.
    for (const Eviction &eviction : state.evictions) {
        const ProfileChunk *chunk = profile.chunk_of(eviction.position);
        if (chunk != nullptr && chunk->begin != eviction.position) {
            fail(status,
                 "device profile: the chunk from position %llu on holds an eviction at %llu",
                 static_cast<Number>(chunk->begin), static_cast<Number>(eviction.position));
        }
    }
}

// Checks what is stored of the last position: hidden state, best logits and texts of tokens.
void check_last(const State &state, Status status) {
    const bool empty = state.log.empty();
    if (state.hidden.size() != (empty ? 0 : state.hidden_size)) {
        fail(status, "hidden state of %zu numbers at position %zu, the model's size is %u",
             state.hidden.size(), state.log.size(), state.hidden_size);
    }
    for (size_t i = 0; i < state.hidden.size(); ++i) {
        if (!is_finite_bf16(state.hidden[i])) {
            fail(status, "hidden state: the bf16 bits %04x at index %zu are not a finite number",
                 state.hidden[i], i);
        }
    }

    if (state.top.size() > kTopMax || (empty && (!state.top.empty() || state.logits != Digest{}))) {
        fail(status, "%zu best logits at position %zu, at most %zu and none at position 0",
             state.top.size(), state.log.size(), kTopMax);
    }
    for (size_t i = 0; i < state.top.size(); ++i) {
        const auto &[token, logit] = state.top[i];
        check_value("best logits", state.top[i], state, status);
        if (i == 0) {
            continue;
        }
        const float own = flushed(logit), last = flushed(state.top[i - 1].second);
        if (own > last || (own == last && token <= state.top[i - 1].first)) {
            fail(status, "best logits: token %u is out of order", token);
        }
    }

    for (size_t i = 0; i < state.token_texts.size(); ++i) {
        const auto &[token, text] = state.token_texts[i];
        if (token >= state.vocabulary || (i > 0 && token <= state.token_texts[i - 1].first) ||
            text.size() > kTextBytesMax) {
            fail(status, "token texts: token %u is out of order or range, or has %zu bytes", token,
                 text.size());
        }
    }
}

void check_digest(const State &state, Status status) {
    const Digest digest = state_digest(state);
    if (digest != state.digest) {
        fail(status, "state digest is %s, the state's parts give %s", to_hex(state.digest).c_str(),
             to_hex(digest).c_str());
    }
}

} // namespace

void check_geometry(const State &state, Status status) {
    check_size("number of layers", state.layers, kGeometryMax, status);
    check_size("number of KV heads", state.kv_heads, kGeometryMax, status);
    check_size("head_dim", state.head_dim, kGeometryMax, status);
    check_size("hidden size", state.hidden_size, UINT32_MAX, status);
    check_size("vocabulary", state.vocabulary, UINT32_MAX, status);
    check_size("positions in a page", state.page_positions, kPagePositionsMax, status);
    if (state.page_positions % kPagePositionsStep != 0) {
        fail(status, "%u positions in a page, expected a multiple of %u", state.page_positions,
             kPagePositionsStep);
    }
    check_recurrent_shape(state, status);
    check_groups(state, status);
    if (state.model.attention.size() != state.layers || state.model.mlp.size() != state.layers) {
        fail(status, "digests of %zu attention and %zu MLP modules for %u layers",
             state.model.attention.size(), state.model.mlp.size(), state.layers);
    }
}

void check_stored(const State &state, size_t group, uint64_t position,
                  const std::vector<bool> &evicted, const std::vector<bool> &stored,
                  Status status) {
    assert(stored.size() <= evicted.size());
    const uint32_t window = state.groups[group].window;
    bool before = false; // whether the last page that is not evicted is stored
    for (uint64_t index = 0; index < stored.size(); ++index) {
        if (evicted[index]) {
            continue;
        }
        if (stored[index]) {
            before = true;
            continue;
        }
        if (before) {
            fail(status, "page %llu of layer group %zu is not stored, but the page before it is",
                 static_cast<Number>(index), group);
        }
        if (page_needed(window, position, state.page_positions, index)) {
            fail(status,
                 "page %llu of layer group %zu is not stored, window %u at position %llu needs it",
                 static_cast<Number>(index), group, window, static_cast<Number>(position));
        }
    }
}

void check_entry(const State &state, size_t group, uint64_t index, const PageRecord &entry,
                 uint64_t end) {
    const auto page = static_cast<Number>(index);
    const uint32_t valid = page_valid(state.log.size(), state.page_positions, index);
    if (entry.valid != valid) {
        fail(Status::corrupt, "page %llu of layer group %zu: %u valid slots, expected %u", page,
             group, entry.valid, valid);
    }

    // Each run must be a section within the state, and its slots a range of a page.
    uint32_t slots = 0;
    for (const Run &run : entry.runs) {
        const bool placed = run.offset >= kSectionsBegin && run.offset % kAlignment == 0 &&
                            run.offset < end && end - run.offset >= kFrameBytes &&
                            run.stored_bytes <= end - run.offset - kFrameBytes;
        const bool counted = run.used > 0 && run.slots <= state.page_positions &&
                             run.first + run.used <= run.slots && run.zero == 0;
        if (!placed || !counted ||
            // See kCodecRatioMax: a reader allocates raw bytes in proportion to stored ones.
            page_stored_bytes(state, group, run.slots) / kCodecRatioMax > run.stored_bytes) {
            fail(Status::corrupt,
                 "page %llu of layer group %zu: a run of %llu bytes at byte %llu, slots %u + %u of "
                 "%u, in a state of %llu bytes",
                 page, group, static_cast<Number>(run.stored_bytes),
                 static_cast<Number>(run.offset), run.first, run.used, run.slots,
                 static_cast<Number>(end));
        }
        slots += run.used;
    }
    if (!entry.runs.empty() && slots != valid) {
        fail(Status::corrupt, "page %llu of layer group %zu: its runs hold %u slots, expected %u",
             page, group, slots, valid);
    }

    // A page has either runs or fingerprints, of its valid slots and of its layers.
    const size_t prints = valid + state.groups[group].layers.size();
    if (!entry.fingerprints.empty() &&
        (!entry.runs.empty() || entry.fingerprints.size() != prints)) {
        fail(Status::corrupt,
             "page %llu of layer group %zu: %zu fingerprints and %zu runs, expected %zu "
             "fingerprints and no run, or no fingerprint",
             page, group, entry.fingerprints.size(), entry.runs.size(), prints);
    }
}

// Geometry comes first, because the other checks use its sizes.
void check_state(const State &state, Status status, const Watch &watch) {
    for (const auto check :
         {check_geometry, check_samplings, check_log, check_numbers, check_evictions, check_profile,
          check_pages, check_recurrent_states, check_last, check_host_data, check_digest}) {
        watch.step(0, 0);
        check(state, status);
    }
    watch.step(0, 0);
}

} // namespace stasis::format
