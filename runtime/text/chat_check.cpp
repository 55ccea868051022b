// Accepts a fitted description only if it renders the same as the template: every order of roles up
// to four turns, longer conversations, contents with whitespace, empty contents, and contents with
// the template's own strings.
#include <algorithm>
#include <set>

#include "format/state/error.h"
#include "runtime/text/chat_probe.h"
#include "runtime/text/jinja/syntax.h"

namespace stasis {

namespace {

// Returns a rendering by the description; nothing if it refuses the conversation.
std::optional<std::string> described(const ChatFormat &format, const Conversation &messages,
                                     bool prompt) {
    try {
        return render_conversation(format, messages, prompt);
    } catch (const Error &) {
        return std::nullopt;
    }
}

// The form of the contents of a probe.
enum class Texts { plain, padded, empty };

Conversation conversation(std::string_view roles, Texts texts) { // "sua": system, user, assistant
    Conversation messages;
    for (const char role : roles) {
        std::string text =
            texts == Texts::empty ? "" : "Qprobe" + std::to_string(messages.size()) + "x y";
        if (texts == Texts::padded) {
            text = "\n \t\u00a0" + text + "\u00a0\t \n";
        }
        messages.push_back({role == 's' ? "system" : role == 'u' ? "user" : "assistant", text});
    }
    return messages;
}

bool agrees(const ChatFormat &format, Prober &prober, std::string_view roles, Texts texts) {
    const Conversation messages = conversation(roles, texts);
    return described(format, messages, true) == prober.render(messages, true) &&
           described(format, messages, false) == prober.render(messages, false);
}

bool agrees_on_all(const ChatFormat &format, Prober &prober,
                   std::initializer_list<std::string_view> conversations) {
    return std::all_of(conversations.begin(), conversations.end(), [&](std::string_view roles) {
        return agrees(format, prober, roles, Texts::plain) &&
               agrees(format, prober, roles, Texts::padded) &&
               agrees(format, prober, roles, Texts::empty);
    });
}

void keep_alternation_only(ChatFormat &format) {
    const bool system = format.first_system != SystemPlace::refused;
    format.later_system = SystemPlace::refused;
    for (auto &row : format.follows) {
        row.fill(false);
    }
    follows(format, Before::start, Speaker::system) = system;
    follows(format, Before::start, Speaker::user) = true;
    follows(format, Before::first_system, Speaker::user) = system;
    follows(format, Before::user, Speaker::assistant) = true;
    follows(format, Before::assistant, Speaker::user) = true;
}

// Reports whether the template gives every rendering of the description, for any order of roles.
bool agrees_on_orders(const ChatFormat &format, Prober &prober) {
    static constexpr std::string_view kRoles = "sua";
    for (size_t length = 1; length <= 4; ++length) {
        size_t count = 1;
        for (size_t i = 0; i < length; ++i) {
            count *= kRoles.size();
        }
        for (size_t n = 0; n < count; ++n) {
            std::string roles;
            for (size_t i = 0, rest = n; i < length; ++i, rest /= kRoles.size()) {
                roles += kRoles[rest % kRoles.size()];
            }
            if (roles.find_first_not_of('s') == std::string::npos) {
                continue; // system texts alone cannot have a reply
            }
            for (const Texts texts : {Texts::plain, Texts::empty}) {
                const Conversation messages = conversation(roles, texts);
                const auto text = described(format, messages, true);
                if (text && text != prober.render(messages, true)) {
                    return false;
                }
            }
        }
    }
    return true;
}

// Finds strings of the template that change the rendering of a content that contains them.
void find_special_texts(ChatFormat &format, Prober &prober, std::string_view source) {
    std::set<std::string> strings;
    for (const jinja::Token &token : jinja::split_tokens(source)) {
        const auto text = jinja::strip(token.text, true, true);
        if (token.kind == jinja::Token::Kind::string && text.size() >= 3 && text.size() <= 40) {
            strings.emplace(text);
        }
    }
    for (const std::string &text : strings) {
        const auto differs = [&](const std::string &user, const std::string &reply) {
            const Conversation messages = {{"user", user},
                                           {"assistant", reply},
                                           {"user", user},
                                           {"assistant", reply},
                                           {"user", "Qmore"}};
            return described(format, messages, true) != prober.render(messages, true);
        };
        // Each text is tried inside a content and as a whole content, then with one role alone.
        for (const std::string &content : {"Qone " + text + " Qtwo " + text, text}) {
            if (differs(content, content)) {
                const bool by_user = differs(content, "Qreply");
                const bool by_reply = differs("Quser", content);
                if (by_user || !by_reply) {
                    format.special_texts.emplace_back(Speaker::user, text);
                }
                if (by_reply || !by_user) {
                    format.special_texts.emplace_back(Speaker::assistant, text);
                }
                break;
            }
        }
    }
}

} // namespace

void check_format(ChatFormat &format, Prober &prober, std::string_view source) {
    if (!agrees_on_all(format, prober, {"u", "uau", "uauau", "uauauau"})) {
        fail(Status::unsupported,
             "what it renders for user and assistant in turn cannot be described turn by turn");
    }
    if (format.first_system != SystemPlace::refused &&
        !agrees_on_all(format, prober, {"su", "suau", "suauau"})) {
        format.first_system = SystemPlace::refused;
        format.system_problem = "where its system text goes cannot be described turn by turn";
        follows(format, Before::start, Speaker::system) = false;
    }
    // Each failure below narrows the description to conversations that agree.
    if (format.renders_last_reply) {
        format.renders_last_reply = agrees_on_all(format, prober, {"ua", "uaua"}) &&
                                    (format.first_system == SystemPlace::refused ||
                                     agrees_on_all(format, prober, {"sua", "suaua"}));
    }
    if (!agrees_on_orders(format, prober)) {
        keep_alternation_only(format);
        if (!agrees_on_orders(format, prober)) {
            fail(Status::unsupported, "its rules for the order of roles cannot be described");
        }
    }
    find_special_texts(format, prober, source);
}

} // namespace stasis
