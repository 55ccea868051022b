// How a generation gets ahead of itself, and why nobody can tell from what it leaves.
//
// A pass computes rows for a token that was drawn and for those proposed behind it. Rows enter the
// timeline one at a time, by the same steps as a decoded token, and only after the token of that
// position was drawn from the logits of the row before: with the sampler and the history that plain
// decoding has there. So between two tokens the session is what plain decoding would have made it,
// apart from keys and values beyond its position, which become zero, and pages that begin beyond
// it, which go back, as soon as a draw differs or the generation ends.
//
// What fails because of a proposal (memory, pages, numbers that are not finite) is done again
// without any, and then succeeds or fails as plain decoding does.
#include "runtime/session/session_speculate.h"

#include <algorithm>

#include "runtime/compute/forward.h"

namespace stasis {

namespace {

std::unique_ptr<Drafter> make_drafter(const DraftOptions &options, const Model &target,
                                      uint64_t capacity) {
    if (options.model == nullptr) {
        return std::make_unique<LookupDrafter>();
    }
    return std::make_unique<ModelDrafter>(options.model, target, capacity);
}

// Of a directory and of a file made from it the digests differ; what counts is what an id stands
// for.
void check_tokenizer(const Model &draft, const Model &target) {
    if (draft.identity.tokenizer == target.identity.tokenizer) {
        return;
    }
    if (draft.tokenizer == nullptr || target.tokenizer == nullptr) {
        fail(Status::model_mismatch, "tokenizer: the draft model has %s, the session's model %s",
             draft.tokenizer == nullptr ? "none" : "one",
             target.tokenizer == nullptr ? "none" : "one");
    }
    for (uint32_t token = 0; token < target.config.vocabulary; ++token) {
        const std::string one = draft.tokenizer->piece(token);
        const std::string other = target.tokenizer->piece(token);
        if (one != other) {
            fail(Status::model_mismatch,
                 "tokenizer: token %u is '%s' in the draft model and '%s' in the session's", token,
                 one.c_str(), other.c_str());
        }
    }
}

void check_draft(const DraftOptions &options, const Model &target) {
    if (options.tokens_min == 0 || options.tokens_min > options.tokens_max ||
        options.tokens_max > DraftOptions::kTokensMost) {
        fail(Status::invalid_argument, "draft of %u to %u tokens: expected 1 <= min <= max <= %u",
             options.tokens_min, options.tokens_max, DraftOptions::kTokensMost);
    }
    if (options.model == nullptr) {
        return;
    }
    const Model &draft = *options.model;
    if (draft.config.vocabulary != target.config.vocabulary) {
        fail(Status::model_mismatch,
             "the draft model has a vocabulary of %u tokens, the session's model one of %u",
             draft.config.vocabulary, target.config.vocabulary);
    }
    check_tokenizer(draft, target);
}

} // namespace

void Session::set_draft(const std::optional<DraftOptions> &options) {
    if (options) {
        check_draft(*options, *model_);
    }
    draft_ = options;
    drafting_.reset();
}

void Session::set_drafter(std::unique_ptr<Drafter> drafter, const DraftOptions &options) {
    check_draft(options, *model_);
    drafting_ = std::make_shared<Drafting>(std::move(drafter), options);
    draft_ = options;
}

// What drafts for a generation; null: nothing.
Drafting *Session::begin_drafting(GenerateResult &result) {
    if (tracks_attention()) {
        return nullptr; // rows that are not kept would leave their weights in the sums
    }
    if (draft_ && drafting_ == nullptr) {
        try {
            drafting_ =
                std::make_shared<Drafting>(make_drafter(*draft_, *model_, capacity_), *draft_);
        } catch (...) {
            ++result.draft_failures;
        }
    }
    return drafting_.get();
}

Speculation::Speculation(Session &session, Drafting &drafting, const Watch &watch,
                         GenerateResult &result)
    : session_(session), drafting_(drafting), watch_(watch), result_(result),
      work_(*session.model_) {
    drafting_.rows.clear();
}

// What plain decoding does as well. Pages that a drafter holds in the same pool may be what it
// lacks.
template <typename Work> void Speculation::with_room(const Work &work) {
    try {
        work();
    } catch (const Error &error) {
        if (error.status() != Status::pool_exhausted || session_.draft_->model != session_.model_ ||
            !drafting_.drafter->release()) {
            throw;
        }
        result_.draft_failures += drafts_ ? 1 : 0;
        drafts_ = false;
        work();
    }
}

// Logits of the next token: of the kept hidden state, as ever, or those of all rows of the pass,
// which are one product.
std::span<const float> Speculation::next_row() {
    const Model &model = *session_.model_;
    const size_t vocabulary = model.config.vocabulary;
    if (taken_ == 0 || drafting_.rows.size() == 1) {
        work_->fit(model.config, model.weights.groups, 1);
        const std::span<float> row{work_->logits, vocabulary};
        with_room([&] { session_.next_logits(*work_, row); });
        return row;
    }
    if (!projected_) {
        project_logits(model, *work_, work_->hidden, drafting_.rows.size(), work_->logit_rows);
        projected_ = true;
    }
    const std::span<const float> row{work_->logit_rows + (taken_ - 1) * vocabulary, vocabulary};
    session_.check_stored(row);
    return row;
}

uint32_t Speculation::decode(uint64_t most, size_t likely_count, LogProbabilities &likely) {
    std::vector<TokenEntry> &rows = drafting_.rows;
    const std::span<const float> row = next_row();
    const uint32_t token = session_.draw_from(*work_, row);
    if (likely_count > 0) {
        log_probabilities(row, likely_count, token, likely);
    }
    const TokenEntry entry = session_.drawn_entry(token);
    if (taken_ < rows.size()) {
        const bool right = rows[taken_].token == token;
        drafting_.length.note(right);
        if (right) {
            ++result_.accepted;
        } else {
            drop();
        }
    }
    if (taken_ == rows.size()) {
        taken_ = 0;
        rows.assign(1, entry);
        propose(token, most);
        if (!try_pass()) {
            plain_pass();
        }
        ++result_.passes;
    }
    session_.take_row(entry, work_->hidden + taken_ * session_.model_->config.hidden);
    ++taken_;
    return token;
}

// Adds rows of proposals behind the one of `next`.
void Speculation::propose(uint32_t next, uint64_t most) {
    const size_t wanted = drafts_ ? std::min<uint64_t>(drafting_.length.wanted(), most - 1) : 0;
    if (wanted == 0) {
        return;
    }
    std::vector<uint32_t> &proposals = drafting_.proposals;
    try {
        proposals.clear();
        drafting_.drafter->propose({session_.log_, next, session_.sampling_, watch_.cancel}, wanted,
                                   proposals);
        for (const uint32_t token : proposals) {
            if (drafting_.rows.size() > wanted || token >= session_.model_->config.vocabulary) {
                break;
            }
            drafting_.rows.push_back({token});
        }
    } catch (...) {
        drafting_.rows.resize(1);
        drafts_ = false;
        if (watch_.cancel == nullptr || !watch_.cancel->load()) {
            ++result_.draft_failures;
        }
    }
}

// Computes the rows if there are proposals among them; false: it could not.
bool Speculation::try_pass() {
    std::vector<TokenEntry> &rows = drafting_.rows;
    const size_t proposed = rows.size() - 1;
    drafting_.length.began(proposed);
    if (proposed == 0) {
        return false;
    }
    try {
        work_->fit_logits(rows.size() * session_.model_->config.vocabulary);
        session_.compute_ahead(rows, *work_);
    } catch (...) {
        rows.resize(1);
        drafting_.length.note(false);
        return false;
    }
    projected_ = false;
    result_.drafted += proposed;
    return true;
}

void Speculation::plain_pass() {
    with_room([&] { session_.compute_ahead(drafting_.rows, *work_); });
}

// Forgets the rows of the pass that are not in the timeline.
void Speculation::drop() noexcept {
    if (taken_ < drafting_.rows.size()) {
        session_.roll_back(session_.log_.size());
        session_.account();
        session_.tell_pages(PageOrigin::before); // fewer than were told of, so nothing can fail
    }
    drafting_.rows.clear();
    taken_ = 0;
}

} // namespace stasis
