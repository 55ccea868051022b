// Conversations as their template renders them: which text is whose. Knows no log.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/chat.h"
#include "runtime/timeline/append.h"

namespace stasis {

// Returns a conversation with guards inside the markers of special tokens that its texts contain,
// so that they stay text. Throws Error(invalid_argument) if it contains the guard.
ChatInput guarded(ChatInput input, const Tokenizer &tokenizer);
std::string without_guards(std::string_view text);

// Returns a rendering cut at each guard, which no marker crosses.
std::vector<Segment> segments_of(std::string_view text);

// Where the messages lie in a rendering, in bytes without guards.
struct Layout {
    std::vector<size_t> ends; // of each message
    std::string text;
};

// Finds the ends of the messages after `known` bytes in `text`, the rendering of all: where the
// rendering of the messages up to each parts from it. Those of a whole conversation take as long as
// two renderings if the template looks at its messages one after the other, and the square of their
// number if it does not (jinja::Template::render_beginnings); those of a turn that follows what is
// known, a few renderings.
Layout lay_out(const ChatTemplate &chat, const ChatInput &input, std::string_view text, bool reply,
               size_t known, const Watch &watch);

} // namespace stasis
