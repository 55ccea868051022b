// Generation, a token at a time, and the loop over it; see generate.h.
#include "runtime/session/generate.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace stasis {

uint64_t most_tokens(const Session &session, const GenerateOptions &options, uint64_t prompt) {
    if (options.log_probabilities > session.model()->config.vocabulary) {
        fail(Status::invalid_argument,
             "log-probabilities of %zu tokens are asked for: the vocabulary has %u tokens",
             options.log_probabilities, session.model()->config.vocabulary);
    }
    if (session.position() + prompt == 0) {
        fail(Status::not_found, "no logits before the first position");
    }
    check_capacity(session.timeline(), prompt, false);
    return std::min(options.tokens_max == 0 ? UINT64_MAX : options.tokens_max,
                    session.timeline().capacity - session.position() - prompt);
}

Generation::Generation(Session &session, GenerateOptions options)
    : session_(&session), options_(std::move(options)),
      text_(session.model(), options_, most_tokens(session, options_, 0)) {
    result_.begin = session.position();
    ahead_.emplace(session, session.begin_drafting(result_), options_.log_probabilities, result_);
}

bool Generation::next(const Watch &watch, Generated &event) {
    if (over_ || text_.stop()) {
        end(text_.stop());
        event = last(text_.piece());
        return false;
    }
    try {
        watch.look(result_.count, result_.count);
        draw(watch);
    } catch (const Error &error) {
        if (error.status() == Status::no_token || error.status() == Status::timeout) {
            end(error.status() == Status::no_token ? StopReason::no_token : StopReason::timeout);
            event = last(text_.piece());
            return false;
        }
        if (error.status() != Status::cancelled) {
            throw;
        }
        result_.reason = StopReason::cancelled;
        event = last(text_.held_back());
        return false;
    }
    result_.reason = StopReason::callback;
    event = {token_, position_, text_.piece(), false,
             options_.log_probabilities > 0 ? &likely_ : nullptr};
    return true;
}

// Draws a token and appends it. Its text is computed in between, for it must not fail any more once
// the token is in the log.
void Generation::draw(const Watch &watch) {
    assert(session_ != nullptr);
    const uint32_t token = ahead_->draw(watch, likely_);
    text_.stage(token);
    ahead_->append(token, text_.left(), watch);
    text_.take();
    ++result_.count;
    token_ = token;
    position_ = session_->position() - 1;
}

// After the last token: withheld text is certain now.
void Generation::end(std::optional<StopReason> reason) noexcept {
    text_.finish();
    if (!over_) {
        result_.reason = *reason;
        over_ = true;
        leave();
    }
}

Generated Generation::last(std::string_view text) const {
    return {token_, position_, text, true, nullptr};
}

void Generation::settle() noexcept {
    if (ahead_) {
        ahead_->settle();
    }
}

void Generation::show_state() noexcept {
    if (ahead_) {
        ahead_->show_state();
    }
}

void Generation::leave() noexcept {
    ahead_.reset();
    session_ = nullptr;
}

void Session::generate(const GenerateOptions &options, GenerateResult &result) {
    result = GenerateResult();
    Generation generation(*this, options);
    tell_all(
        generation, options,
        [&](Generated &event) { return generation.next(options.watch, event); }, result);
}

} // namespace stasis
