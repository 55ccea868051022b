// Text of drawn tokens, up to a stop; see text_stream.h.
#include "runtime/session/text_stream.h"

#include <algorithm>
#include <utility>

#include "runtime/host/utf8.h"

namespace stasis {

TextStream::TextStream(std::shared_ptr<const Model> model, const GenerateOptions &options,
                       uint64_t most)
    : model_(std::move(model)), ignore_end_(options.ignore_end), stop_tokens_(options.stop_tokens),
      strings_(options.stop_strings), most_(most) {
    if (!options.stop_strings.empty() && model_->tokenizer == nullptr) {
        fail(Status::unsupported, "stop strings need a tokenizer, which the model does not have");
    }
    if (most_ == 0) {
        stop_ = StopReason::length;
    }
}

bool TextStream::is_stop_token(uint32_t token) const {
    const auto among = [token](const std::vector<uint32_t> &tokens) {
        return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
    };
    return (!ignore_end_ && among(model_->config.end_tokens)) || among(stop_tokens_);
}

void TextStream::drop_piece() {
    waiting_.erase(0, piece_);
    dropped_ += piece_;
    piece_ = 0;
}

void TextStream::stage(uint32_t token) {
    if (token >= model_->config.vocabulary) {
        fail(Status::invalid_argument, "token %u is outside the vocabulary of %u tokens", token,
             model_->config.vocabulary);
    }
    drop_piece();
    staged_stop_ = is_stop_token(token);
    staged_.clear();
    if (!staged_stop_ && model_->tokenizer != nullptr) {
        staged_ = model_->tokenizer->decode({&token, 1}, false, false);
    }
    waiting_.reserve(waiting_.size() + staged_.size());
}

void TextStream::take() noexcept {
    if (stop_ || finished_) {
        return;
    }
    waiting_ += staged_; // has room
    certain_ = strings_.add(staged_);
    piece_ = complete_utf8(std::string_view(waiting_).substr(0, certain_ - dropped_));
    ++count_;
    if (staged_stop_) {
        stop_ = StopReason::end_token;
    } else if (strings_.stopped()) {
        stop_ = StopReason::stop_string;
    } else if (count_ == most_) {
        stop_ = StopReason::length;
    }
}

std::string_view TextStream::held_back() const {
    const size_t shown = strings_.stopped() ? certain_ - dropped_ : waiting_.size();
    const std::string_view rest =
        std::string_view(waiting_).substr(0, shown).substr(std::min(piece_, shown));
    return rest.substr(0, complete_utf8(rest));
}

void TextStream::finish() noexcept {
    drop_piece();
    certain_ = strings_.finish();
    piece_ = complete_utf8(std::string_view(waiting_).substr(0, certain_ - dropped_));
    waiting_.resize(piece_);
    finished_ = true;
}

} // namespace stasis
