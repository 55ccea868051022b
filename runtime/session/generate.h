// A generation that gives its tokens one at a time. Between two of them the session is whole: its
// log has the tokens that were given, and nothing else. Knows neither the ABI nor who may use the
// session meanwhile.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/session/lookahead.h"
#include "runtime/session/session.h"
#include "runtime/session/text_stream.h"

namespace stasis {

// Returns how many tokens a session may draw after a prompt: the options' limit, and what it has
// room for. Throws Error for options that it cannot serve, and for a prompt that it has no room
// for.
uint64_t most_tokens(const Session &session, const GenerateOptions &options, uint64_t prompt);

class Generation {
  public:
    // The session outlives it, or `leave` is called before. Throws Error: unsupported,
    // invalid_argument, not_found before the first position. Uses neither the options' callback nor
    // their watch.
    Generation(Session &session, GenerateOptions options);
    Generation(const Generation &) = delete;
    Generation &operator=(const Generation &) = delete;

    // Draws the next token, appends it and describes it in `event`, whose pointers are valid until
    // the next call. Returns false where there is none, or the watch's time is over: the event then
    // has `last` and the text that was held back. If the reason in the result is `cancelled`, that
    // text stays held back and a later call goes on; else the generation is over. Strong guarantee.
    bool next(const Watch &watch, Generated &event);
    // Drops rows computed ahead, so that the session can be read, shared and stored as it is. Not
    // during `next`.
    void settle() noexcept;
    // The same for those who read no more than the state: what is computed ahead may stay.
    void show_state() noexcept;
    // Lets go of the session. A generation that is not over can then not go on.
    void leave() noexcept;

    bool over() const { return over_; }
    // Returns the outcome so far. While it is neither over nor cancelled, the reason is `callback`.
    const GenerateResult &result() const { return result_; }

  private:
    void draw(const Watch &watch);
    void end(std::optional<StopReason> reason) noexcept;
    Generated last(std::string_view text) const;

    Session *session_; // null: over, or left
    const GenerateOptions options_;
    GenerateResult result_{.reason = StopReason::callback};
    TextStream text_;
    std::optional<Lookahead> ahead_; // empty: over, or left
    LogProbabilities likely_;        // of the last token, if asked for
    uint32_t token_ = 0;             // the last one
    uint64_t position_ = 0;
    bool over_ = false;
};

// Calls back with every event of a generation, which `next` fetches as Generation::next does.
// Tokens that `result` counts stay in the log, whatever ended the generation. A stop or a cancel is
// a reason in `result`, not an exception. A failure throws, and `result` is filled as well.
template <typename Next>
void tell_all(const Generation &generation, const GenerateOptions &options, const Next &next,
              GenerateResult &result) {
    const auto tell = [&](const Generated &event) {
        return options.callback == nullptr || options.callback(options.callback_user, event);
    };
    Generated event{};
    try {
        bool more = true;
        while (more && next(event)) {
            more = tell(event);
        }
        result = generation.result();
        if (more && !event.text.empty() && !tell(event)) {
            result.reason = StopReason::callback;
        }
    } catch (...) {
        result = generation.result();
        result.reason = StopReason::length; // as where nothing is reported
        throw;
    }
}

} // namespace stasis
