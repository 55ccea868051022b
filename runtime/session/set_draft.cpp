// Chooses and checks a session's drafter; see session.h.
#include "runtime/session/mtp_drafter.h"
#include "runtime/session/session.h"

namespace stasis {

namespace {

std::unique_ptr<Drafter> make_drafter(const DraftOptions &options, const Model &target,
                                      uint64_t capacity) {
    if (options.model == nullptr) {
        return std::make_unique<LookupDrafter>();
    }
    if (options.model.get() == &target && target.mtp != nullptr) {
        return std::make_unique<MtpDrafter>(options.model);
    }
    return std::make_unique<ModelDrafter>(options.model, target, capacity);
}

// Throws Error(model_mismatch) unless both models have the same tokens. A directory and a GGUF file
// made from it have different digests, so the texts of tokens are compared.
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
    require_sessions(draft); // it computes a log as it grows
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
    drafting_ = std::make_unique<Drafting>(std::move(drafter), options);
    draft_ = options;
}

Drafting *Session::begin_drafting(GenerateResult &result) {
    if (tracks_attention()) {
        return nullptr; // rejected rows would leave their weights in the sums
    }
    if (draft_ && drafting_ == nullptr) {
        try {
            drafting_ = std::make_unique<Drafting>(
                make_drafter(*draft_, *model_, timeline_.capacity), *draft_);
        } catch (...) {
            ++result.draft_failures;
        }
    }
    return drafting_.get();
}

} // namespace stasis
