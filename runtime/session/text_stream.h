// What a reader sees of tokens that were drawn one after the other: complete characters, nothing
// that may still become part of a stop string, and whether a stop condition was met. Generation and
// hosts that draw with steps use the same. Knows neither sessions nor how tokens are drawn.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/session/generation.h"
#include "runtime/session/model.h"
#include "runtime/text/stop_strings.h"

namespace stasis {

class TextStream {
  public:
    // Uses the stop conditions of the options, and `most` in place of tokens_max. Throws
    // Error(unsupported) for stop strings without a tokenizer, Error(invalid_argument) for an empty
    // one.
    TextStream(std::shared_ptr<const Model> model, const GenerateOptions &options, uint64_t most);

    // Prepares for the next token, so that taking it cannot fail. Ends the view of the last piece,
    // and changes nothing else. Throws Error(invalid_argument) for a token out of range.
    void stage(uint32_t token);
    // Takes the token that was staged. After a stop it adds nothing.
    void take() noexcept;
    // Ends the text: what was held back becomes the piece, but for an incomplete last character.
    void finish() noexcept;

    // Returns the most bytes that the piece of the token that was staged, or of a later finish,
    // has.
    size_t room() const { return waiting_.size() + staged_.size(); }
    // Returns the text that became final with the last token taken, or with finish. Valid until the
    // next call of stage or finish.
    std::string_view piece() const { return std::string_view(waiting_).substr(0, piece_); }
    // Returns the piece that finish would make.
    std::string_view held_back() const;
    // Returns why the text ended; empty: no stop condition is met.
    std::optional<StopReason> stop() const { return stop_; }
    uint64_t count() const { return count_; } // tokens taken
    uint64_t left() const { return most_ - count_; }

  private:
    bool is_stop_token(uint32_t token) const;
    void drop_piece();

    std::shared_ptr<const Model> model_;
    bool ignore_end_;
    std::vector<uint32_t> stop_tokens_;
    StopStrings strings_;
    uint64_t most_, count_ = 0;
    std::string waiting_;  // the last piece, and text after it that is not shown
    size_t piece_ = 0;     // bytes of the last piece
    uint64_t dropped_ = 0; // bytes of earlier pieces
    uint64_t certain_ = 0; // bytes of all text that are certain to be shown
    std::string staged_;   // bytes of the token that was staged
    bool staged_stop_ = false, finished_ = false;
    std::optional<StopReason> stop_;
};

} // namespace stasis
