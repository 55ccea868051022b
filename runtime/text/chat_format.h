// A chat template as plain data: the texts around each role's contents and the order of roles. Made
// by chat_builtin.cpp or fitted by chat_probe.cpp, read by chat.cpp. Included by these,
// chat_check.cpp (through chat_probe.h) and no other file.
#pragma once

#include <array>
#include <ctime>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/chat.h"

namespace stasis {

struct TurnFormat {
    std::string prefix, suffix;
    bool trim_left = false, trim_right = false; // whitespace around the content is dropped
};

// The position of a system text in a rendering.
enum class SystemPlace {
    refused,
    turn,    // its own turn
    folded,  // into the first user turn, before the user's text
    dropped, // the template omits it
};

// The situation before a turn.
enum class Before { start, first_system, user, assistant, later_system };
enum class Speaker { system, user, assistant };

struct ChatFormat {
    std::string name;
    std::string
        opening; // before a first turn that follows no system text: bos, a default system turn
    TurnFormat user, assistant;
    std::string generation; // generation prompt, after the last turn
    std::string closing;    // ends a whole rendering that has no generation prompt

    SystemPlace first_system = SystemPlace::refused;
    std::string system_problem; // why it is refused, if the template itself does not refuse it
    std::string system_opening; // replaces `opening` if a system text comes first
    // The text's own turn; if folded, the text around it inside the first user turn.
    TurnFormat system;
    bool system_skips_empty = false; // an empty system text, first or later, is omitted
    std::string default_system;      // folded: in the first user turn if no system text was given
    bool strips_folded = false;      // folded: system and user text are trimmed as one

    SystemPlace later_system = SystemPlace::refused; // a later system turn: turn or dropped
    TurnFormat system_later;

    std::array<std::array<bool, 3>, 5> follows{}; // [Before][Speaker]

    // A conversation that ends with an assistant's text may render that text differently.
    bool renders_last_reply = true;
    std::string last_reply_lead; // before that text, after a user's turn; if there is one,
    bool last_reply_drops_newlines = false; // the text's leading newlines may go
    // Texts that the template treats specially inside a content. Such a content is refused, because
    // it would be rendered differently from the template.
    std::vector<std::pair<Speaker, std::string>> special_texts;
};

inline bool &follows(ChatFormat &format, Before before, Speaker speaker) {
    return format.follows[static_cast<size_t>(before)][static_cast<size_t>(speaker)];
}

RenderedTurn render_turn(const ChatFormat &format, const ChatPosition &before,
                         std::string_view role, std::string_view text, bool reply,
                         bool last_reply = false);
std::string render_conversation(const ChatFormat &format, std::span<const Message> messages,
                                bool generation_prompt);

// Returns the published template of a family; throws Error(invalid_argument) for an unknown name.
ChatFormat builtin_format(std::string_view name, std::string_view bos_text,
                          std::string_view eos_text);
// Returns the family of a format by its markers; empty if none.
std::string family_of(const ChatFormat &format);

// Runs the template on probe conversations and describes its renderings. Throws Error(unsupported)
// with the reason if it cannot be interpreted or described.
ChatFormat fit_template(std::string_view jinja, std::string_view bos_text,
                        std::string_view eos_text, std::optional<std::time_t> date);

} // namespace stasis
