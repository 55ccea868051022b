// Turns of a conversation: converts a role and a text to tokens of the log, each with its source,
// role and turn. The state of the conversation is derived from the log, so nothing is stored twice.
#include <algorithm>

#include "runtime/host/utf8.h"
#include "runtime/session/session.h"

namespace stasis {

namespace {

Role role_named(std::string_view role) {
    return role == "system"      ? Role::system
           : role == "user"      ? Role::user
           : role == "assistant" ? Role::assistant
                                 : Role::other;
}

} // namespace

// Reports whether the log ends in a reply that the template's end has not closed.
bool Session::reply_open() const {
    if (timeline_.log.empty()) {
        return false;
    }
    const TokenEntry &last = timeline_.log[timeline_.log.size() - 1];
    return (last.turn & TokenEntry::kReplyPrompt) != 0 ||
           (last.role() == Role::assistant && last.source != TokenSource::templated);
}

// Returns the `turn` of the next token, which is sampled or appended by its id: it belongs to the
// open reply. A sampled token after a turn begins a reply even without a generation prompt.
uint8_t Session::next_turn(bool sampled) const {
    if (timeline_.log.empty()) {
        return 0;
    }
    const Role role = timeline_.log[timeline_.log.size() - 1].role();
    const auto assistant = static_cast<uint8_t>(Role::assistant);
    if (reply_open()) {
        return role == Role::assistant ? assistant : assistant | TokenEntry::kTurnStart;
    }
    return sampled && role != Role::none ? assistant | TokenEntry::kTurnStart : 0;
}

// Derives the position in the conversation from the roles and turns of the log.
ChatPosition Session::chat_position() const {
    ChatPosition position;
    position.started = !timeline_.log.empty();
    position.pending_system = settings_.pending_system;
    for (uint64_t i = 0; i < timeline_.log.size(); ++i) {
        const Role role = timeline_.log[i].role();
        position.last = role == Role::none ? position.last : role;
        position.user_seen |= role == Role::user;
    }
    position.reply_open = reply_open();
    if (position.reply_open) {
        position.last = Role::assistant;
        const uint32_t token = timeline_.log[timeline_.log.size() - 1].token;
        if (model_->tokenizer->is_special(token) &&
            timeline_.log[timeline_.log.size() - 1].source != TokenSource::templated) {
            position.reply_tail = model_->tokenizer->decode({&token, 1}, false, true);
        }
    }
    return position;
}

Prompt Session::message_prompt(std::string_view role, std::string_view text, bool reply,
                               const Watch &watch) const {
    if (model_->tokenizer == nullptr) {
        fail(Status::unsupported, "messages need a tokenizer, which the model does not have");
    }
    if (!model_->chat) {
        fail(Status::unsupported,
             "the model's files have no chat template; name one in the model options");
    }

    // Renders the turn, and refuses it before tokenizing if it cannot fit.
    const RenderedTurn turn = model_->chat->turn(chat_position(), role, text, reply);
    uint64_t size_bytes = 0;
    for (const Segment &segment : turn.segments) {
        size_bytes += segment.text.size();
    }
    // tokens_min is a lower bound, so a refused turn could never fit.
    check_capacity(timeline_, model_->tokenizer->tokens_min(size_bytes), true);

    // Tokens become entries with the source, role and turn of their segment.
    const std::vector<SourcedToken> tokens = model_->tokenizer->encode(turn.segments, watch);
    std::vector<TokenEntry> entries;
    entries.reserve(tokens.size());
    bool started = false, prompted = false;
    for (const SourcedToken &token : tokens) {
        TokenEntry entry{token.token, 0, token.source, 0};
        switch (turn.segments[token.segment].part) {
        case TurnPart::closing:
            entry.turn = static_cast<uint8_t>(Role::assistant);
            break;
        case TurnPart::body:
            entry.turn =
                static_cast<uint8_t>(role_named(role)) | (started ? 0 : TokenEntry::kTurnStart);
            started = true;
            break;
        case TurnPart::reply:
            entry.turn = static_cast<uint8_t>(Role::assistant) | TokenEntry::kReplyPrompt |
                         (prompted ? 0 : TokenEntry::kTurnStart);
            prompted = true;
            break;
        }
        entries.push_back(entry);
    }
    // The template needs no generation prompt, so the last token of the turn is marked.
    if (reply && !prompted && !entries.empty()) {
        entries.back().turn |= TokenEntry::kReplyPrompt;
    }
    return {std::move(entries), turn.pending_system};
}

Prompt Session::token_prompt(std::span<const uint32_t> tokens) const {
    Prompt prompt{{}, settings_.pending_system};
    add_entries(tokens, prompt.entries);
    return prompt;
}

void Session::append_message(std::string_view role, std::string_view text, bool reply,
                             const AppendOptions &options) {
    Prompt prompt = message_prompt(role, text, reply, options.watch);
    append_entries(prompt.entries, options);
    settings_.pending_system = std::move(prompt.pending_system);
}

std::string Session::text(uint64_t begin, uint64_t end) const {
    if (model_->tokenizer == nullptr) {
        fail(Status::unsupported, "text needs a tokenizer, which the model does not have");
    }
    std::vector<uint32_t> tokens;
    tokens.reserve(end - begin);
    for (uint64_t i = begin; i < end; ++i) {
        tokens.push_back(timeline_.log[i].token);
    }
    std::string text = model_->tokenizer->decode(tokens, begin == 0, false);
    text.resize(complete_utf8(text));
    return text;
}

} // namespace stasis
