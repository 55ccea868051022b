// A stored state for tests of verification: page data of its own, which tests change, and digests
// that are made to vouch for the change.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "runtime/snapshot/verify.h"
#include "tests/runtime/models.h"

namespace stasis::test {

struct StoredState {
    State state;
    std::vector<std::vector<std::vector<uint16_t>>> data; // [group][page], empty: not stored

    StoredState(Model &model, Session &session) : state(export_state(session)) {
        for (size_t group = 0; group < state.pages.size(); ++group) {
            const size_t elements = model.pool->shape(static_cast<uint32_t>(group)).elements();
            std::vector<std::vector<uint16_t>> &pages = data.emplace_back();
            for (const Page &page : state.pages[group]) {
                const uint64_t index = pages.size();
                pages.emplace_back();
                if (page.far) {
                    const PageName name{group, index};
                    const FetchedPages fetched = state.fetch({&name, 1});
                    fetched.wait();
                    pages.back().assign(fetched.numbers[0], fetched.numbers[0] + elements);
                } else if (page.data != nullptr) {
                    pages.back().assign(page.data, page.data + elements);
                }
            }
        }
    }

    StoredPages pages() const {
        return {[this](size_t group, uint64_t index) { return !data[group][index].empty(); },
                [this](std::span<const PageInto> pages) {
                    for (const PageInto &page : pages) {
                        std::ranges::copy(data[page.group][page.index], page.data);
                    }
                },
                nullptr, nullptr};
    }

    // Flips a bit of one value (side 0: key, 1: value) and the page's digest with it.
    void flip(const Model &model, uint32_t layer, size_t side, uint64_t position) {
        const auto [group, layer_in_group] = model.layer_places[layer];
        const PageShape &shape = model.pool->shape(group);
        const uint64_t index = position / kPage;
        data[group][index][shape.offset(layer_in_group, side, shape.kv_heads - 1) +
                           position % kPage * shape.head_dim] ^= 1;
        Page &page = state.pages[group][index];
        page.digest = page_digest({group, index, data[group][index].data(), shape.rows(), kPage,
                                   page.valid, shape.head_dim});
    }

    // The final hidden state, logits, best logits or texts (`what`, 0 to 3) become others; gives
    // the element that they belong to.
    uint32_t change_end(int what) {
        switch (what) {
        case 0:
            state.hidden[3] ^= 1;
            state.digest = state_digest(state);
            return 9;
        case 1:
            state.logits.bytes[31] ^= 1;
            return 9;
        case 2:
            state.top[63].second += 1;
            return 9;
        default:
            state.token_texts.emplace_back(7, "seven");
            return 10;
        }
    }

    // A session that believes it.
    std::unique_ptr<Session> restored(const std::shared_ptr<Model> &model) {
        for (size_t group = 0; group < data.size(); ++group) {
            for (size_t index = 0; index < data[group].size(); ++index) {
                const std::vector<uint16_t> &page = data[group][index];
                state.pages[group][index].data = page.empty() ? nullptr : page.data();
            }
        }
        return restore_session(model, state, nullptr);
    }
};

inline VerifyReport verified(const std::shared_ptr<Model> &model, const StoredState &stored) {
    const kernels::FloatEnvironment environment;
    return verify(model, stored.state, stored.pages(), VerifyOptions());
}

inline std::vector<uint32_t> some_tokens(size_t count) {
    std::vector<uint32_t> tokens;
    for (uint32_t i = 0; i < count; ++i) {
        tokens.push_back(i * 37 % 191);
    }
    return tokens;
}

// `given` tokens and 60 drawn ones.
inline std::unique_ptr<Session> conversation(const std::shared_ptr<Model> &model,
                                             size_t given = 150, TimelineOptions options = {}) {
    auto session = std::make_unique<Session>(model, options);
    session->append(some_tokens(given), AppendOptions());
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
