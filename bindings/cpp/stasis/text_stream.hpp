// Stasis for C++20: the text of tokens that decode, steps or a scheduler draw. Included by
// stasis.hpp.
#pragma once

#include "stasis/generation.hpp"
#include "stasis/model.hpp"

namespace stasis {

// What became final with a token: whole characters, and nothing that may become a stop string.
struct Piece {
    std::string text = {};
    std::optional<Stop> stop = {}; // the condition that is met; later tokens add nothing
};

// Makes text of tokens as a generation does, with the same stop conditions.
class TextStream {
  public:
    // Of the options cancel and log_probabilities are not used.
    explicit TextStream(const Model &model, const GenerateOptions &options = {}) {
        const detail::RawGenerate given(options);
        stasis_text_stream *raw = nullptr;
        detail::call([&](stasis_error *error) {
            return stasis_text_stream_create(model.raw(), &given.raw, &raw, error);
        });
        handle_.reset(raw);
    }

    // Takes a token.
    Piece push(Token token) {
        return piece([&](stasis_text_piece *to, stasis_error *error) {
            return stasis_text_stream_push(handle_.get(), token, to, error);
        });
    }
    // Ends the text, and returns what was held back.
    Piece finish() {
        return piece([&](stasis_text_piece *to, stasis_error *error) {
            return stasis_text_stream_finish(handle_.get(), to, error);
        });
    }

  private:
    template <typename Function> Piece piece(const Function &function) {
        auto raw = detail::sized<stasis_text_piece>();
        detail::call([&](stasis_error *error) { return function(&raw, error); });
        return {.text = std::string(raw.text, raw.length),
                .stop = raw.stopped != 0 ? std::optional(static_cast<Stop>(raw.stop_reason))
                                         : std::nullopt};
    }

    detail::Handle<stasis_text_stream, stasis_text_stream_free> handle_;
};

} // namespace stasis
