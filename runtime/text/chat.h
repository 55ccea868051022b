// Chat templates: how a conversation's turns become text. A template is plain data, fitted at open
// to what the model's own Jinja template renders for probe conversations (chat_probe.cpp), or a
// built-in one by name (chat_builtin.cpp). Knows text only, no tokens and no session.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/state/state.h"
#include "runtime/text/tokenizer.h"

namespace stasis {

struct Message {
    std::string role;
    std::string text;
};

// What the conversation looks like before the next turn.
struct ChatPosition {
    bool started = false;       // a turn (bos included) has been appended
    Role last = Role::none;     // role of the last turn, or none
    bool user_seen = false;     // some user turn has been appended
    bool reply_open = false;    // the last turn is a generated reply that has not been closed
    std::string reply_tail;     // text of the tokens after which the reply stands open: the special
                                // token it ended with, or empty if it was cut
    std::string pending_system; // system text waiting for the first user turn
};

// One turn rendered alone: everything that must be appended for it, closing of an open reply
// included. `pending_system` replaces the position's.
struct RenderedTurn {
    std::vector<Segment> segments; // first segment begins with bos's text if bos comes first
    std::string pending_system;
};

class ChatTemplate {
  public:
    // Recognised from chat_template.jinja or tokenizer_config.json's chat_template by what it
    // renders. Empty optional: the directory has no template. A template that is not recognised
    // gives a ChatTemplate whose name() is "" and whose problem() says why. `now`: the date for
    // templates that print today's.
    static std::optional<ChatTemplate> recognise(const std::string &directory);
    static std::optional<ChatTemplate> recognise_text(std::string_view jinja,
                                                      std::string_view bos_text,
                                                      std::string_view eos_text,
                                                      std::time_t now = std::time(nullptr));
    // "gemma", "chatml", "zephyr", "llama2", "llama3", "mistral", "phi3". Throws
    // invalid_argument naming the known ones. `bos_text`, `eos_text`: the tokenizer's markers.
    static ChatTemplate named(std::string_view name, std::string_view bos_text,
                              std::string_view eos_text);

    const std::string &name() const;
    const std::string &problem() const;

    // One more turn. `reply`: followed by the generation prompt. Throws invalid_argument where the
    // template refuses the order of roles, naming both roles; unsupported if not recognised.
    RenderedTurn turn(const ChatPosition &before, std::string_view role, std::string_view text,
                      bool reply) const;
    // A whole conversation, exactly as the full template renders it.
    std::string render(std::span<const Message> messages, bool generation_prompt) const;

  private:
    struct Parts;
    std::shared_ptr<const Parts> parts_;
};

} // namespace stasis
