// A session's beginning, appends, forks and rewinds; see session.h.
#include "runtime/session/session.h"

#include <cassert>

namespace stasis {

Session::Session(std::shared_ptr<Model> model, const TimelineOptions &options)
    : model_(std::move(model)), timeline_(*model_, options) {
    require_sessions(*model_);
}

Session::Session(std::shared_ptr<Model> model, Timeline timeline, Settings settings)
    : model_(std::move(model)), timeline_(std::move(timeline)), settings_(std::move(settings)) {
    assert(timeline_.network == model_.get());
    require_sessions(*model_);
}

void Session::add_entries(std::span<const uint32_t> tokens,
                          std::vector<TokenEntry> &entries) const {
    const size_t before = entries.size();
    entries.resize(before + tokens.size());
    const uint8_t turn = next_turn(false);
    for (size_t i = 0; i < tokens.size(); ++i) {
        if (tokens[i] >= model_->config.vocabulary) {
            entries.resize(before);
            fail(Status::invalid_argument,
                 "token %u at index %zu is outside the vocabulary of %u tokens", tokens[i], i,
                 model_->config.vocabulary);
        }
        TokenEntry &entry = entries[before + i];
        entry.token = tokens[i];
        entry.turn = i == 0 ? turn : turn & ~TokenEntry::kTurnStart;
    }
}

void Session::append(std::span<const uint32_t> tokens, const AppendOptions &options) {
    std::vector<TokenEntry> entries;
    add_entries(tokens, entries);
    append_entries(entries, options);
}

// Appends, and shows the drafter what is computed.
void Session::append_entries(std::span<const TokenEntry> entries, const AppendOptions &options) {
    GenerateResult unused;
    const uint64_t position = timeline_.position();
    if (!draft_ || begin_drafting(unused) == nullptr) {
        stasis::append(timeline_, entries, options);
        return;
    }
    AppendOptions run = options;
    run.hidden_user = this;
    run.hidden = [](void *user, const Timeline &, uint64_t begin, const uint16_t *hidden,
                    size_t rows) noexcept {
        const Session &session = *static_cast<const Session *>(user);
        session.drafting_->drafter->computed(session.timeline_.log, begin,
                                             {hidden, rows * session.model_->config.hidden});
    };
    try {
        stasis::append(timeline_, entries, run);
    } catch (...) {
        drafting_->drafter->rewound(position);
        throw;
    }
}

std::unique_ptr<Session> Session::fork() {
    auto child = std::make_unique<Session>(model_, timeline_, settings_);
    child->timeline_.tokens_reused = 0; // pages shared from the start do not count
    child->draft_ = draft_;
    child->text_ = text_;
    return child;
}

void Session::rewind(uint64_t position, bool recompute, const AppendOptions &options) {
    const uint64_t end = timeline_.position(), floor = timeline_.rewind_floor();
    if (position > end) {
        fail(Status::invalid_argument, "rewind to %llu lies beyond the position %llu",
             Number{position}, Number{end});
    }
    if (position == end) {
        if (position == 0) {
            settings_.pending_system.clear(); // a rewind to 0 is a reset
        }
        return;
    }

    // Below the floor, pages are missing: the log is then computed again in another timeline.
    if (position == 0 || position >= floor) {
        timeline_.rewind(position);
    } else if (recompute) {
        TimelineOptions fresh;
        fresh.capacity = timeline_.capacity;
        fresh.window_retain = timeline_.window_retain;
        fresh.tracking = timeline_.sums.tracking();
        fresh.domain = timeline_.domain;
        Timeline again = computed_again(timeline_, position, fresh, options);
        again.tokens_reused += timeline_.tokens_reused;
        timeline_.become(std::move(again));
    } else {
        fail(Status::unsupported,
             "rewind to %llu lies below the floor %llu: %s; it needs recomputing "
             "(STASIS_REWIND_RECOMPUTE)",
             Number{position}, Number{floor},
             floor == timeline_.evictions.last() ? "at that position tokens were evicted"
                                                 : "local layers have released their pages");
    }

    // The session's own state follows the log.
    if (text_) {
        text_->rewound(position);
    }
    settings_.pending_system.clear();
    if (position == 0) {
        settings_.samplings.clear();
    }
    if (drafting_ != nullptr) {
        drafting_->drafter->rewound(position);
    }
    timeline_.tell(TraceKind::rewind, position, end);
}

} // namespace stasis
