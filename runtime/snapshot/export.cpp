// Exports sessions; see export.h. The reverse is restore.cpp.
#include "runtime/snapshot/export.h"

#include <algorithm>
#include <cassert>

#include "runtime/kv/page_staging.h"
#include "runtime/sampling/likelihood.h"
#include "runtime/snapshot/check.h"

namespace stasis {

namespace {

constexpr size_t kTop = 64; // best logits kept in a snapshot

Digest digest_row(std::span<const float> row) {
    return Sha256().bytes(row.data(), row.size_bytes()).finish();
}

// Exports the log, the texts of its tokens, and the settings that it refers to.
void export_log(const TokenLog &log, const Settings &settings, const Model &model, State &state) {
    const Config &config = model.config;
    // Exports the settings that the log refers to, in order of first use, and the settings in
    // force.
    std::vector<uint32_t> renumbered(settings.samplings.size(), UINT32_MAX);
    std::vector<bool> used(config.vocabulary, false);
    state.log.reserve(log.size());
    for (uint64_t i = 0; i < log.size(); ++i) {
        TokenEntry entry = log[i];
        if (entry.source == TokenSource::sampled) {
            assert(entry.sampling < settings.samplings.size());
            uint32_t &index = renumbered[entry.sampling];
            if (index == UINT32_MAX) {
                index = static_cast<uint32_t>(state.samplings.size());
                state.samplings.push_back(settings.samplings[entry.sampling]);
            }
            entry.sampling = static_cast<uint16_t>(index);
        }
        used[entry.token] = true;
        state.log.push_back(entry);
    }
    for (uint32_t token = 0; model.tokenizer != nullptr && token < config.vocabulary; ++token) {
        if (used[token]) {
            state.token_texts.emplace_back(token, model.tokenizer->piece_bytes(token));
        }
    }
    const auto current =
        std::find(state.samplings.begin(), state.samplings.end(), settings.sampling);
    state.sampling = static_cast<uint32_t>(current - state.samplings.begin());
    if (current == state.samplings.end()) {
        state.samplings.push_back(settings.sampling);
    }
    state.contract = contract_of(config, state.samplings);
}

// Starts to copy pages to the host; `held` keeps them alive.
FetchedPages fetch_pages(const PagePool &pool, const std::shared_ptr<std::vector<PageTable>> &held,
                         std::span<const PageName> names) {
    struct Way {
        std::shared_ptr<std::vector<PageTable>> held;
        PageStaging staging; // destroyed before `held`

        Way(const PagePool &from, std::shared_ptr<std::vector<PageTable>> pages)
            : held(std::move(pages)), staging(from) {}
    };
    size_t bytes = 0;
    for (const PageName &name : names) {
        bytes += pool.shape(static_cast<uint32_t>(name.group)).bytes();
    }
    const auto way = std::make_shared<Way>(pool, held);
    way->staging.fit(bytes);
    FetchedPages fetched;
    fetched.numbers.reserve(names.size());
    for (const PageName &name : names) {
        fetched.numbers.push_back(way->staging.read((*held)[name.group][name.index].page));
    }
    fetched.wait = [way] { way->staging.finish(); };
    return fetched;
}

// Exports the page tables. Each table stores the digest and slots by which the file will name its
// last page.
void export_pages(Timeline &timeline, State &state) {
    const PagePool &pool = *timeline.network->pool;
    bool far = false;
    for (size_t group = 0; group < timeline.pages.size(); ++group) {
        std::vector<Page> &pages = state.pages.emplace_back();
        for (size_t index = 0; index < timeline.pages[group].size(); ++index) {
            const PageEntry &entry = timeline.pages[group][index];
            const uint64_t valid = std::min<uint64_t>(kPage, timeline.log.size() - index * kPage);
            pages.push_back({static_cast<uint32_t>(valid), timeline.page_digest_of(group, index),
                             entry.page ? pool.numbers(entry.page) : nullptr, entry.exported_slots,
                             entry.exported});
            pages.back().far = entry.page && pages.back().data == nullptr;
            far |= pages.back().far;
        }
        if (!pages.empty() && pages.back().valid != pages.back().earlier_valid) {
            PageEntry &last = timeline.pages[group].mutate(pages.size() - 1);
            last.exported = last.digest;
            last.exported_slots = last.digested;
        }
    }
    // Keeps the pages alive.
    const auto held = std::make_shared<std::vector<PageTable>>(timeline.pages);
    state.storage.push_back(held);
    if (far) {
        state.fetch = [&pool, held](std::span<const PageName> names) {
            return fetch_pages(pool, held, names);
        };
    }
}

// Exports the recurrent states: that of the last position and the checkpoints.
void export_states(const Timeline &timeline, State &state) {
    using Checkpoint = RecurrentStates::Checkpoint;
    const std::span<const Checkpoint> all = timeline.states.all();
    for (const Checkpoint &each : all) {
        state.states.push_back(
            {each.position, each.state.digest(each.position), each.state.numbers()});
    }
    state.storage.push_back(std::make_shared<std::vector<Checkpoint>>(all.begin(), all.end()));
}

} // namespace

State export_state(Timeline &timeline, const Settings &settings, const Model &model,
                   const Watch &watch) {
    assert(timeline.network == &model);
    State state;
    // Computes the hidden state if needed.
    const ModelIdentity &identity = model.identity_of(timeline.long_rope);
    state.digest = timeline.digest(identity.model, watch);
    const Config &config = model.config;
    state.model = identity;
    state.layers = config.layers;
    state.kv_heads = config.kv_heads;
    state.head_dim = config.head_dim;
    state.hidden_size = config.hidden;
    state.vocabulary = config.vocabulary;
    state.page_positions = kPage;
    state.groups = model.groups;
    state.sharing = model.sharing;
    state.recurrent = recurrent_shape_of(config);
    state.profile = timeline.profile;
    state.capacity = timeline.capacity;
    state.window_retain = timeline.window_retain;
    state.tracking = static_cast<uint32_t>(timeline.sums.tracking());
    state.pending_system = settings.pending_system;
    state.host_data = settings.host_data;
    for (const Evictions::Event &eviction : timeline.evictions.events()) {
        state.evictions.push_back(*eviction);
    }

    export_log(timeline.log, settings, model, state);
    export_pages(timeline, state);
    export_states(timeline, state);
    if (!timeline.log.empty()) {
        state.hidden = timeline.hidden.numbers;
        const std::vector<float> &row = timeline.logits();
        state.logits = digest_row(row);
        state.top = best(row, kTop);
    }
    return state;
}

State export_state(Session &session, const Watch &watch) {
    return export_state(session.timeline(), session.settings(), *session.model(), watch);
}

} // namespace stasis
