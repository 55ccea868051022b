// One step of many sessions; see session.h. Logits of those that draw are one product, and what is
// appended is one series of passes.
#include <algorithm>
#include <cstring>

#include "runtime/forward.h"
#include "runtime/session.h"

namespace stasis {

namespace {

constexpr size_t kLogitRows = 16; // rows of logits that are computed, and held, together

// Whether an item has something to do in a round: first what was given and what can be drawn at
// once, then draws behind what was given.
bool takes_part(const StepItem &item, bool behind) {
    const bool given = !item.tokens.empty();
    return item.error == nullptr && (behind ? given && item.sample : given || item.sample);
}

} // namespace

void Session::check_step(std::span<const StepItem> items) {
    std::vector<const Session *> sessions;
    for (const StepItem &item : items) {
        if (item.session->model_ != items[0].session->model_) {
            fail(Status::invalid_argument, "sessions of one step are of different models");
        }
        sessions.push_back(item.session);
    }
    std::sort(sessions.begin(), sessions.end());
    if (std::adjacent_find(sessions.begin(), sessions.end()) != sessions.end()) {
        fail(Status::invalid_argument, "a session is in the same step twice");
    }
}

// Draws the next token of each; of those that cannot, the error says why.
void Session::draw_together(Model &model, std::span<StepItem *const> items) {
    const size_t hidden = model.config.hidden, vocabulary = model.config.vocabulary;
    WorkspaceLease work(model);
    std::vector<StepItem *> ready;
    for (StepItem *item : items) {
        try {
            item->session->require_hidden(*work);
            ready.push_back(item);
        } catch (...) {
            item->error = std::current_exception();
        }
    }
    if (ready.empty()) {
        return;
    }
    const size_t most = std::min(kLogitRows, ready.size());
    work->fit(model.config, model.weights.groups, most);
    work->fit_logits(most * vocabulary);
    for (size_t begin = 0; begin < ready.size(); begin += most) {
        const size_t count = std::min(most, ready.size() - begin);
        for (size_t i = 0; i < count; ++i) {
            std::memcpy(work->narrow + i * hidden, ready[begin + i]->session->hidden_.data(),
                        hidden * sizeof(uint16_t));
        }
        project_logits(model, *work, work->narrow, count, work->logit_rows);
        for (size_t i = 0; i < count; ++i) {
            StepItem &item = *ready[begin + i];
            const std::span<const float> row{work->logit_rows + i * vocabulary, vocabulary};
            try {
                item.session->check_stored(row);
                item.token = item.session->draw_from(*work, row);
            } catch (...) {
                item.error = std::current_exception();
            }
        }
    }
}

void Session::step_round(Model &model, std::span<StepItem> items, bool behind,
                         const RunOptions &options) {
    std::vector<StepItem *> drawing;
    for (StepItem &item : items) {
        if (takes_part(item, behind) && (behind || item.tokens.empty())) {
            drawing.push_back(&item);
        }
    }
    draw_together(model, drawing);
    std::vector<std::vector<TokenEntry>> entries;
    std::vector<StepItem *> growing;
    for (StepItem &item : items) {
        if (!takes_part(item, behind)) {
            continue;
        }
        try {
            entries.push_back(behind || item.tokens.empty()
                                  ? std::vector{item.session->drawn_entry(item.token)}
                                  : item.session->entries_of(item.tokens));
            growing.push_back(&item);
        } catch (...) {
            item.error = std::current_exception();
        }
    }
    std::vector<Growth> growths;
    for (size_t i = 0; i < growing.size(); ++i) {
        growths.push_back({growing[i]->session, entries[i]});
    }
    grow(model, growths, options);
    for (size_t i = 0; i < growths.size(); ++i) {
        growing[i]->error = growths[i].error;
        growing[i]->ended_call = growths[i].ended_call;
    }
}

void Session::step(std::span<StepItem> items, const RunOptions &options) {
    for (const bool behind : {false, true}) {
        try {
            if (!items.empty()) {
                step_round(*items[0].session->model_, items, behind, options);
            }
        } catch (...) { // before any session changed
            for (StepItem &item : items) {
                if (takes_part(item, behind)) {
                    item.error = std::current_exception();
                    item.ended_call = true;
                }
            }
        }
    }
}

} // namespace stasis
