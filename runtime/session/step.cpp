// Runs steps; see step.h. The logits of all sessions that draw are one product, and all appends run
// in the same passes.
#include "runtime/session/step.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <optional>

#include "runtime/compute/forward.h"
#include "runtime/session/draw.h"
#include "runtime/session/session.h"

namespace stasis {

namespace {

constexpr size_t kLogitRows = 16; // rows of logits computed and held together

// Reports whether an item takes part in a round. The first round (`behind` false) appends given
// tokens and draws where none are given; the second draws after given tokens.
bool takes_part(const StepItem &item, bool behind) {
    const bool given = !item.tokens.empty();
    return item.error == nullptr && (behind ? given && item.sample : given || item.sample);
}

} // namespace

void StepBuffers::clear() {
    items.clear(), sessions.clear(), drawing.clear(), growing.clear();
    entries.clear(), appends.clear();
}

StepLease::StepLease(Model &model) : model_(model), buffers_(model.idle_steps.take()) {
    if (buffers_ == nullptr) {
        buffers_ = std::make_unique<StepBuffers>();
    }
}

StepLease::~StepLease() {
    buffers_->clear(); // drops the errors and sessions
    model_.idle_steps.give(std::move(buffers_));
}

void check_step(std::span<const StepItem> items) {
    if (items.empty()) {
        return;
    }
    const StepLease buffers(*items[0].session->model());
    std::vector<const Session *> &sessions = buffers->sessions;
    for (const StepItem &item : items) {
        if (item.session->model() != items[0].session->model()) {
            fail(Status::invalid_argument, "sessions of one step are of different models");
        }
        sessions.push_back(item.session);
    }
    std::sort(sessions.begin(), sessions.end());
    if (std::adjacent_find(sessions.begin(), sessions.end()) != sessions.end()) {
        fail(Status::invalid_argument, "a session is in the same step twice");
    }
}

namespace {

// Draws an item's token from its logits. What fails becomes the item's error.
void draw_one(StepItem &item, std::span<const float> row, Pass &scratch,
              const Watch &watch) noexcept {
    try {
        Timeline &timeline = item.session->timeline();
        timeline.check_logits_row(row);
        const auto allowed = item.session->mask(watch);
        item.token =
            draw_from(timeline, item.session->settings().sampling, bits_of(allowed), row, scratch);
        if (item.drawn != nullptr) {
            item.drawn(item, row);
        }
    } catch (...) {
        item.error = std::current_exception();
        item.ended_call = watch.ends();
    }
}

} // namespace

void draw_together(Model &model, std::vector<StepItem *> &ready, bool spread, const Watch &watch) {
    const size_t hidden = model.config.hidden, vocabulary = model.config.vocabulary;
    PassLease pass(model);
    std::erase_if(ready, [&](StepItem *item) {
        try {
            item->session->timeline().require_hidden(*pass, watch);
        } catch (...) {
            item->error = std::current_exception();
            item->ended_call = watch.ends();
        }
        return item->error != nullptr;
    });
    if (ready.empty()) {
        return;
    }

    // Logits of up to kLogitRows items are computed by one product.
    const size_t most = std::min(kLogitRows, ready.size());
    pass->fit(most);
    pass->fit_logits(most);
    for (size_t begin = 0; begin < ready.size(); begin += most) {
        const size_t count = std::min(most, ready.size() - begin);
        for (size_t i = 0; i < count; ++i) {
            std::memcpy(pass->hidden + i * hidden,
                        ready[begin + i]->session->timeline().hidden.numbers.data(),
                        hidden * sizeof(uint16_t));
        }
        project_logits(*pass, pass->hidden, count, pass->logit_rows);
        const auto draw = [&](size_t i, Pass &scratch) {
            draw_one(*ready[begin + i], {pass->logit_rows + i * vocabulary, vocabulary}, scratch,
                     watch);
        };
        if (!spread) {
            for (size_t i = 0; i < count; ++i) {
                draw(i, *pass);
            }
            continue;
        }
        std::vector<std::optional<PassLease>> scratch(model.threads->count());
        for (std::optional<PassLease> &each : scratch) {
            each.emplace(model);
        }
        model.threads->run(count, 1, [&](size_t first, size_t end, size_t thread) {
            for (size_t i = first; i < end; ++i) {
                draw(i, **scratch[thread]);
            }
        });
    }
}

void collect_appends(std::span<StepItem> items, bool behind, StepBuffers &buffers) {
    std::vector<TokenEntry> &entries = buffers.entries;
    const auto draws = [behind](const StepItem &item) { return behind || item.tokens.empty(); };
    for (StepItem &item : items) {
        if (!takes_part(item, behind)) {
            continue;
        }
        const size_t before = entries.size();
        try {
            if (draws(item)) {
                entries.push_back(item.session->drawn_entry(item.token));
            } else {
                item.session->add_entries(item.tokens, entries);
            }
            buffers.growing.push_back(&item);
        } catch (...) {
            entries.resize(before);
            item.error = std::current_exception();
        }
    }
    // No entry is added any more, so spans of `entries` stay valid.
    std::span<const TokenEntry> left = entries;
    for (const StepItem *item : buffers.growing) {
        const size_t count = draws(*item) ? 1 : item->tokens.size();
        buffers.appends.push_back({&item->session->timeline(), left.first(count)});
        left = left.subspan(count);
    }
}

namespace {

// Runs one round of a step: draws, then appends together, then takes over the errors.
void run_round(Model &model, std::span<StepItem> items, bool behind, const AppendOptions &options,
               StepBuffers &buffers) {
    for (StepItem &item : items) {
        if (takes_part(item, behind) && (behind || item.tokens.empty())) {
            buffers.drawing.push_back(&item);
        }
    }
    draw_together(model, buffers.drawing, false, options.watch);
    collect_appends(items, behind, buffers);
    append_together(model, buffers.appends, options);
    for (size_t i = 0; i < buffers.appends.size(); ++i) {
        StepItem &item = *buffers.growing[i];
        item.error = buffers.appends[i].error;
        item.ended_call = buffers.appends[i].ended_call;
        if (item.error == nullptr && (behind || item.tokens.empty())) {
            item.session->drew();
        }
    }
}

} // namespace

void run_step(std::span<StepItem> items, const AppendOptions &options) {
    assert(std::all_of(items.begin(), items.end(), [&](const StepItem &item) {
        return item.session->model() == items[0].session->model();
    }));
    for (const bool behind : {false, true}) {
        try {
            if (!items.empty()) {
                Model &model = *items[0].session->model();
                const StepLease buffers(model);
                run_round(model, items, behind, options, *buffers);
            }
        } catch (...) { // nothing has changed a session yet
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
