// Logs computed by forward passes of the test's own, without a session: their pages and recurrent
// states are the test's memory.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "runtime/compute/forward.h"
#include "tests/runtime/models.h"

namespace stasis::test {

struct PassedLog {
    const Model &model;
    std::vector<uint32_t> tokens = {};
    std::vector<std::vector<std::vector<uint16_t>>> pages = {}; // [group][page]
    std::vector<float> state = {};                              // empty: at the beginning
    std::vector<std::vector<float>> logits = {};                // [position]
};

// The next rows of a log.
struct PassedRows {
    PassedLog &log;
    std::vector<uint32_t> tokens;
};

// Computes rows of several logs of one model in one pass. A state is written over the one before it
// if `in_place`, which only a log that is not at its beginning can do.
inline void pass_together(std::span<const PassedRows> all, bool in_place = false) {
    const kernels::FloatEnvironment environment;
    const Model &model = all.front().log.model;
    PassLease pass(model);
    size_t count = 0;
    for (const PassedRows &rows : all) {
        count += rows.tokens.size();
    }
    pass->fit(count);
    pass->clear();
    std::vector<std::vector<float>> next;
    for (const PassedRows &rows : all) {
        PassedLog &log = rows.log;
        const size_t begin = log.tokens.size(), end = begin + rows.tokens.size();
        pass->tokens.insert(pass->tokens.end(), rows.tokens.begin(), rows.tokens.end());
        log.tokens.insert(log.tokens.end(), rows.tokens.begin(), rows.tokens.end());
        Sequence &sequence = pass->add_sequence(begin, rows.tokens.size(), model.groups.size());
        sequence.evicted = {};
        log.pages.resize(model.groups.size());
        for (size_t group = 0; group < model.groups.size(); ++group) {
            auto &pages = log.pages[group];
            pages.resize((end + kPage - 1) / kPage);
            sequence.pages[group].first = 0;
            for (std::vector<uint16_t> &page : pages) {
                page.resize(model.page_shapes[group].elements());
                sequence.pages[group].data.push_back(page.data());
            }
        }
        const bool first = log.state.empty();
        next.push_back(in_place && !first ? std::vector<float>()
                                          : std::vector<float>(model.state_size(), -7.0F));
        sequence.state = first ? nullptr : log.state.data();
        sequence.next_states = {
            {rows.tokens.size(), next.back().empty() ? log.state.data() : next.back().data()}};
    }
    forward(*pass);
    std::vector<float> logits(count * model.config.vocabulary);
    project_logits(*pass, pass->hidden, count, logits.data());
    for (size_t i = 0; i < all.size(); ++i) {
        const Sequence &sequence = pass->sequences[i];
        REQUIRE_FALSE(sequence.failed);
        for (size_t row = 0; row < sequence.rows; ++row) {
            const float *from = &logits[(sequence.row + row) * model.config.vocabulary];
            all[i].log.logits.emplace_back(from, from + model.config.vocabulary);
        }
        if (!next[i].empty()) {
            all[i].log.state = std::move(next[i]);
        }
    }
}

// Returns a log of `tokens`, computed `chunk` at a time.
inline PassedLog passed_log(const Model &model, std::span<const uint32_t> tokens, size_t chunk,
                            bool in_place = false) {
    PassedLog log{model};
    for (size_t at = 0; at < tokens.size(); at += chunk) {
        const auto part = tokens.subspan(at, std::min(chunk, tokens.size() - at));
        const PassedRows rows{log, {part.begin(), part.end()}};
        pass_together({&rows, 1}, in_place);
    }
    return log;
}

inline bool same_log(const PassedLog &a, const PassedLog &b) {
    return a.logits.size() == b.logits.size() && same_bits(a.state, b.state) &&
           std::equal(a.logits.begin(), a.logits.end(), b.logits.begin(), same_bits);
}

} // namespace stasis::test
