// Chat templates: they convert a conversation's turns to text. A template is plain data. It is
// fitted, when a model is opened, to the model's own Jinja template, rendered for probe
// conversations (chat_probe.cpp), or a built-in one by name (chat_builtin.cpp). Knows text only, no
// tokens and no session.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/state/state.h"
#include "runtime/text/chat_input.h"
#include "runtime/text/jinja/jinja.h"
#include "runtime/text/reply.h"
#include "runtime/text/tokenizer.h"

namespace stasis {

struct Message {
    std::string role;
    std::string text;
};

// The state of a conversation before the next turn.
struct ChatPosition {
    bool started = false;    // a turn (bos included) has been appended
    Role last = Role::none;  // role of the last turn, or none
    bool user_seen = false;  // some user turn has been appended
    bool reply_open = false; // the last turn is a generated reply that is not closed
    // Text of the tokens at which the reply stands open: the special token that it ended with, or
    // empty if it was cut.
    std::string reply_tail;
    std::string pending_system; // system text that waits for the first user turn
};

// One turn rendered alone: everything that must be appended for it, including the end of an open
// reply. `pending_system` replaces the position's.
struct RenderedTurn {
    std::vector<Segment> segments; // the first segment begins with bos's text if bos comes first
    std::string pending_system;
};

class ChatTemplate {
  public:
    // Recognises a template from chat_template.jinja or tokenizer_config.json's chat_template by
    // its renderings. Empty optional: the directory has no template. For a template that is not
    // described turn by turn, problem() returns the reason; name() is "" also where the family is
    // unknown. `date` is for templates that print it.
    static std::optional<ChatTemplate> recognise(const ModelFolder &folder,
                                                 std::optional<std::time_t> date);
    static std::optional<ChatTemplate> recognise_text(std::string_view jinja,
                                                      std::string_view bos_text,
                                                      std::string_view eos_text,
                                                      std::optional<std::time_t> date);
    // Returns a built-in template: "gemma", "chatml", "zephyr", "llama2", "llama3", "mistral",
    // "phi3". Throws Error(invalid_argument) listing these. `bos_text` and `eos_text` are the
    // tokenizer's markers.
    static ChatTemplate named(std::string_view name, std::string_view bos_text,
                              std::string_view eos_text);

    const std::string &name() const;
    const std::string &problem() const;

    // Renders one more turn, followed by the generation prompt if `reply`. Throws
    // Error(invalid_argument) if the template refuses the order of roles, naming both roles;
    // Error(unsupported) if it was not recognised.
    RenderedTurn turn(const ChatPosition &before, std::string_view role, std::string_view text,
                      bool reply) const;
    // Renders a whole conversation, exactly as the full template does.
    std::string render(std::span<const Message> messages, bool generation_prompt) const;

    // Runs the model's own template for the first `count` messages. Throws Error(unsupported) if
    // there is none or it needs what the interpreter lacks, and Error(invalid_argument) if it
    // refuses the conversation.
    std::string render(const ChatInput &input, size_t count, bool generation_prompt) const;
    // Reports renderings of beginnings of a conversation without a generation prompt, each as
    // `render` gives it, of fewer messages first (jinja::Template::render_beginnings); not all of
    // them have to be reported. Throws what `take` throws, and as `render` does for all messages.
    void render_beginnings(const ChatInput &input, const jinja::TakeBeginning &take) const;
    // How replies of the model's own template are written.
    const ReplyFormat &replies() const;

  private:
    struct Parts;
    // The variables of a rendering but for the messages.
    jinja::Dict variables(const ChatInput &input, bool generation_prompt) const;
    std::shared_ptr<const Parts> parts_;
};

} // namespace stasis
