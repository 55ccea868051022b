// A stored state for tests of verification: page data of its own, which tests change, and digests
// that are made to vouch for the change.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "runtime/verify.h"
#include "tests/runtime/models.h"

namespace stasis::test {

inline constexpr uint64_t kPage = kernels::kPagePositions;

struct Stored {
    State state;
    std::vector<std::vector<std::vector<uint16_t>>> data; // [group][page], empty: not stored

    Stored(Model &model, Session &session) : state(session.export_state()) {
        for (size_t group = 0; group < state.pages.size(); ++group) {
            const size_t elements = model.pool->shape(static_cast<uint32_t>(group)).elements();
            std::vector<std::vector<uint16_t>> &pages = data.emplace_back();
            for (const Page &page : state.pages[group]) {
                pages.emplace_back();
                if (page.data != nullptr) {
                    pages.back().assign(page.data, page.data + elements);
                }
            }
        }
    }

    StoredPages pages() const {
        return {[this](size_t group, uint64_t index) { return !data[group][index].empty(); },
                [this](size_t group, uint64_t index, uint16_t *to) {
                    std::copy(data[group][index].begin(), data[group][index].end(), to);
                },
                nullptr};
    }

    // Flips a bit of one value (side 0: key, 1: value) and the page's digest with it.
    void flip(const Model &model, uint32_t layer, size_t side, uint64_t position) {
        const auto [group, layer_in_group] = model.layer_places[layer];
        const PageShape &shape = model.pool->shape(group);
        const uint64_t index = position / kPage;
        data[group][index][shape.offset(layer_in_group, side, shape.kv_heads - 1) +
                           position % kPage * shape.head_dim] ^= 1;
        Page &page = state.pages[group][index];
        page.digest = page_digest(group, index, data[group][index].data(), shape.rows(), kPage,
                                  page.valid, shape.head_dim);
    }

    // Makes the state digest that of what the state holds now.
    void seal() {
        StateParts parts;
        parts.contract_core = state.contract.core;
        parts.contract_kv = state.contract.kv;
        parts.model = state.model.model;
        parts.position = state.log.size();
        Sha256 tokens;
        for (const TokenEntry &entry : state.log) {
            tokens.u32(entry.token);
        }
        parts.tokens = tokens.finish();
        for (size_t group = 0; group < state.pages.size(); ++group) {
            parts.windows.push_back(state.groups[group].window);
            std::vector<Digest> &digests = parts.pages.emplace_back();
            for (const Page &page : state.pages[group]) {
                digests.push_back(page.digest);
            }
        }
        parts.hidden = state.hidden;
        state.digest = state_digest(parts);
    }

    // A session that believes it.
    std::unique_ptr<Session> restored(const std::shared_ptr<Model> &model) {
        for (size_t group = 0; group < data.size(); ++group) {
            for (size_t index = 0; index < data[group].size(); ++index) {
                const std::vector<uint16_t> &page = data[group][index];
                state.pages[group][index].data = page.empty() ? nullptr : page.data();
            }
        }
        return Session::restore(model, state, nullptr);
    }
};

inline std::vector<uint32_t> some_tokens(size_t count) {
    std::vector<uint32_t> tokens;
    for (uint32_t i = 0; i < count; ++i) {
        tokens.push_back(i * 37 % 191);
    }
    return tokens;
}

// `given` tokens and 60 drawn ones.
inline std::unique_ptr<Session> conversation(const std::shared_ptr<Model> &model,
                                             size_t given = 150, SessionOptions options = {}) {
    auto session = std::make_unique<Session>(model, options);
    session->append(some_tokens(given), RunOptions());
    Sampling sampling;
    sampling.temperature = 1.5F;
    sampling.frequency_penalty = 0.5F;
    sampling.penalty_window = 7;
    session->set_sampling(sampling);
    for (int i = 0; i < 60; ++i) {
        if (i == 20) {
            sampling.seed = 99; // settings change on the way
            session->set_sampling(sampling);
        }
        session->decode();
    }
    return session;
}

} // namespace stasis::test
