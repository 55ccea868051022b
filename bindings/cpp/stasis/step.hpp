// Stasis for C++20: what each of many sessions needs next, computed together. Included by
// stasis.hpp.
#pragma once

#include "stasis/session.hpp"

namespace stasis {

// The work of one session in a step, and its outcome.
struct StepItem {
    Session *session = nullptr;
    std::vector<Token> tokens = {};  // appended first
    bool sample = false;             // then draw a token and append it
    std::optional<Token> token = {}; // out: the one that was drawn
    std::optional<Error> error = {}; // out: why this item failed, which does not affect the others
};

// Computes one step of sessions of one model: each gets the bits that it gets alone. Throws Error
// where nothing was done, or where the step was cancelled: items that are complete then stay so.
inline void step(std::span<StepItem> items, const RunOptions &options = {}) {
    std::vector<Token> tokens;
    std::vector<stasis_error> errors(items.size());
    std::vector<stasis_step_item> given(items.size(), detail::sized<stasis_step_item>());
    for (std::size_t i = 0; i < items.size(); ++i) {
        given[i].session = items[i].session == nullptr ? nullptr : items[i].session->raw();
        given[i].begin = tokens.size();
        given[i].count = items[i].tokens.size();
        given[i].flags = items[i].sample ? STASIS_STEP_SAMPLE : 0;
        given[i].status = -1; // none: nothing was written to it
        given[i].error = &errors[i];
        tokens.insert(tokens.end(), items[i].tokens.begin(), items[i].tokens.end());
    }
    detail::RunCall call(options);
    const stasis_status status =
        stasis_sessions_step(given.data(), sizeof(stasis_step_item), given.size(), tokens.data(),
                             tokens.size(), &call.raw, call.error());
    for (std::size_t i = 0; i < items.size(); ++i) {
        items[i].token.reset();
        items[i].error.reset();
        if (given[i].status == STASIS_OK && items[i].sample) {
            items[i].token = given[i].token;
        } else if (given[i].status > STASIS_OK) {
            items[i].error.emplace(static_cast<Status>(given[i].status), errors[i].message);
        }
    }
    for (const StepItem &item : items) {
        if (item.session != nullptr) {
            item.session->rethrow_trace();
        }
    }
    call.check(status);
}

} // namespace stasis
