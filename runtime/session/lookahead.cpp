// Draws tokens from rows computed ahead; see lookahead.h.
#include "runtime/session/lookahead.h"

#include <algorithm>

#include "runtime/compute/forward.h"
#include "runtime/session/draw.h"

namespace stasis {

Lookahead::Lookahead(Session &session, Drafting *drafting, size_t log_probabilities,
                     GenerateResult &result)
    : session_(session), timeline_(session.timeline()), drafting_(drafting),
      log_probabilities_(log_probabilities), result_(result),
      // Rejected rows would leave their attention in the sums.
      device_draws_(drafting == nullptr && log_probabilities == 0 && !session.tracks_attention() &&
                    session.model()->backend->draws_ahead(session.settings().sampling)) {}

// Returns the token that the device drew after the last row taken, else a token drawn from that
// row's logits.
uint32_t Lookahead::draw(const Watch &watch, LogProbabilities &likely) {
    if (taken_ > 0 && taken_ <= drawn_.size()) {
        return drawn_[taken_ - 1];
    }
    if (!pass_) {
        pass_.emplace(*session_.model());
    }
    const std::span<const float> row = next_row(watch);
    const std::shared_ptr<const constraint::Mask> allowed = session_.mask(watch);
    const uint32_t token =
        draw_from(timeline_, session_.settings().sampling, bits_of(allowed), row, **pass_);
    if (log_probabilities_ > 0) {
        log_probabilities(row, log_probabilities_, token, likely);
    }
    return token;
}

void Lookahead::append(uint32_t token, uint64_t most, const Watch &watch) {
    try {
        append_drawn(session_.drawn_entry(token), most, watch);
    } catch (...) {
        drop(); // of rows that were computed for this token, none is left for another attempt
        throw;
    }
    session_.drew();
    show_hidden();
}

// The token enters the log from a row computed ahead, if one exists. Results are noted once nothing
// can fail.
void Lookahead::append_drawn(const TokenEntry &entry, uint64_t most, const Watch &watch) {
    // Rows ahead remain valid only if the token drawn is the one proposed.
    const bool proposed = drafting_ != nullptr && taken_ < rows_.size();
    const bool right = proposed && rows_[taken_].token == entry.token;
    if (proposed && !right) {
        drafting_->length.note(false);
        drop();
    }
    if (taken_ == rows_.size()) {
        drop();
        if (!compute_rows(entry, most, watch)) {
            rows_.clear();
            append_alone(entry);
            ++result_.passes;
            return;
        }
    }
    // The token's row is computed: it enters the log.
    take_ahead(timeline_, ahead_, entry,
               (*pass_)->hidden + taken_ * session_.model()->config.hidden);
    result_.passes += device_draws_ || taken_ == 0 ? 1 : 0;
    ++taken_;
    if (right) {
        drafting_->length.note(true);
        ++result_.accepted;
    }
}

// Shows the drafter the final hidden state of the last token.
void Lookahead::show_hidden() {
    if (drafting_ != nullptr && timeline_.hidden.valid) { // a known page may lack it
        drafting_->drafter->computed(timeline_.log, timeline_.position() - 1,
                                     timeline_.hidden.numbers);
    }
}

// Returns the logits of the next token: those of the final hidden state, or those of the last row
// taken. The logits of all rows of a pass are computed by one product.
std::span<const float> Lookahead::next_row(const Watch &watch) {
    const Model &model = *session_.model();
    const size_t vocabulary = model.config.vocabulary;
    if (taken_ == 0) {
        std::span<const float> row;
        with_pages([&] { row = timeline_.compute_logits(**pass_, watch); });
        return row;
    }
    if (!projected_) {
        project_logits(**pass_, (*pass_)->hidden, rows_.size(), (*pass_)->logit_rows);
        projected_ = true;
    }
    const std::span<const float> row{(*pass_)->logit_rows + (taken_ - 1) * vocabulary, vocabulary};
    timeline_.check_logits_row(row);
    return row;
}

// Computes rows for a token that was drawn and for proposals after it. Returns false if there are
// no proposals or the pass failed.
bool Lookahead::compute_rows(const TokenEntry &entry, uint64_t most, const Watch &watch) {
    if ((drafting_ == nullptr && !device_draws_) ||
        !timeline_.states.holds(timeline_.position())) { // appending alone computes it
        return false;
    }
    rows_.assign(1, entry);
    return drafting_ != nullptr ? compute_drafted(most, watch) : compute_drawn(most);
}

// A failure counts as a wrong proposal, and the token is appended alone.
bool Lookahead::compute_drafted(uint64_t most, const Watch &watch) {
    propose(rows_[0].token, most, watch);
    const size_t proposed = rows_.size() - 1;
    drafting_->length.began(proposed);
    if (proposed == 0) {
        return false;
    }
    try {
        (*pass_)->fit_logits(rows_.size());
        ahead_ = compute_ahead(timeline_, rows_, **pass_);
    } catch (...) {
        drafting_->length.note(false);
        return false;
    }
    projected_ = false;
    computed_ = rows_.size();
    result_.drafted += proposed;
    return true;
}

// Adds rows for the tokens that the drafter proposes. After an exception it is not asked again.
void Lookahead::propose(uint32_t drawn, uint64_t most, const Watch &watch) {
    most = std::min(most, most_ahead(timeline_));
    const size_t wanted = drafts_ ? std::min<uint64_t>(drafting_->length.wanted(), most - 1) : 0;
    if (wanted == 0) {
        return;
    }
    std::vector<uint32_t> &proposals = drafting_->proposals;
    try {
        proposals.clear();
        std::optional<DraftedText> text = session_.drafted_text();
        if (text && !text->take(drawn)) {
            return;
        }
        drafting_->drafter->propose({timeline_.log, drawn, session_.settings().sampling,
                                     watch.silent(), timeline_.hidden.numbers,
                                     text ? &*text : nullptr},
                                    wanted, proposals);
        const auto fits = [&](uint32_t token) {
            return token < session_.model()->config.vocabulary;
        };
        // Some drafters know nothing of constraints.
        const auto follows = [&](uint32_t token) {
            return fits(token) && (!text || text->take(token));
        };
        proposals.erase(std::find_if_not(proposals.begin(), proposals.end(), follows),
                        proposals.end());
        proposals.resize(std::min(proposals.size(), wanted));
        for (const uint32_t token : proposals) {
            rows_.push_back({token});
        }
    } catch (...) {
        rows_.resize(1);
        drafts_ = false;
        result_.draft_failures += watch.ends() ? 0 : 1;
    }
}

// The device draws twice as many tokens as last time, up to kDrawnMost.
bool Lookahead::compute_drawn(uint64_t most) {
    device_length_ = std::min(2 * device_length_, kDrawnMost);
    const auto count =
        static_cast<size_t>(std::min({uint64_t{device_length_}, most, most_ahead(timeline_)}));
    if (count < 2) {
        return false;
    }
    rows_.resize(count);
    try {
        (*pass_)->fit(kDrawnMost); // reserved once for all lengths
        ahead_ = compute_ahead(timeline_, rows_, **pass_, session_.settings().sampling, &run_);
    } catch (...) {
        return false;
    }
    computed_ = count;
    // A row with a value that is not finite is dropped. It is computed again alone, and then
    // fails.
    const auto failed = std::find_if(run_.failures.begin(), run_.failures.end(),
                                     [](uint32_t layer) { return layer != UINT32_MAX; });
    rows_.resize(static_cast<size_t>(failed - run_.failures.begin()));
    drawn_.assign(run_.tokens.begin(), run_.tokens.begin() + static_cast<long>(rows_.size()));
    if (rows_.empty()) {
        drop();
        return false;
    }
    for (size_t i = 1; i < rows_.size(); ++i) {
        rows_[i].token = drawn_[i - 1];
    }
    return true;
}

void Lookahead::append_alone(const TokenEntry &entry) {
    pass_.reset(); // append uses a pass of its own
    with_pages([&] { stasis::append(timeline_, {&entry, 1}, {}); });
}

// Does some work, and repeats it if it failed for lack of pages that the drafter's timeline in the
// same pool can give back.
template <typename Work> void Lookahead::with_pages(const Work &work) {
    try {
        work();
    } catch (const Error &error) {
        if (error.status() != Status::pool_exhausted || drafting_ == nullptr ||
            session_.draft()->model != session_.model() || !drafting_->drafter->release()) {
            throw;
        }
        result_.draft_failures += drafts_ ? 1 : 0;
        drafts_ = false;
        work();
    }
}

void Lookahead::settle() noexcept {
    drop();
    pass_.reset();
}

void Lookahead::show_state() noexcept {
    if (!timeline_.hidden.valid || !timeline_.states.holds(timeline_.position())) {
        settle();
    }
}

// Drops the rows that are not in the timeline.
void Lookahead::drop() noexcept {
    if (taken_ < computed_) {
        drop_ahead(timeline_, ahead_, **pass_);
    }
    ahead_ = RowsAhead();
    rows_.clear();
    drawn_.clear();
    taken_ = computed_ = 0;
}

} // namespace stasis
