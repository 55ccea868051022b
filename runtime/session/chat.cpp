// Turns of a conversation: from a role and a text to tokens of the log, each with its source, role
// and turn. What the conversation looks like is read off the log: nothing is kept twice.
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

// Whether the log ends in a reply that has not been closed by the template's end.
bool Session::reply_open() const {
    if (timeline_.log.empty()) {
        return false;
    }
    const TokenEntry &last = timeline_.log[timeline_.log.size() - 1];
    return (last.turn & TokenEntry::kReplyPrompt) != 0 ||
           (last.role() == Role::assistant && last.source != TokenSource::templated);
}

// The `turn` of a token that is sampled, or appended by its id, next: part of the open reply; a
// sampled token after a turn begins a reply even without a prompt for one.
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

void Session::append_message(std::string_view role, std::string_view text, bool reply,
                             const AppendOptions &options) {
    if (model_->tokenizer == nullptr) {
        fail(Status::unsupported, "messages need a tokenizer, which the model does not have");
    }
    if (!model_->chat) {
        fail(Status::unsupported,
             "the model's files have no chat template; name one in the model options");
    }
    const RenderedTurn turn = model_->chat->turn(chat_position(), role, text, reply);
    uint64_t size_bytes = 0;
    for (const Segment &segment : turn.segments) {
        size_bytes += segment.text.size();
    }
    // What cannot fit is refused before it is tokenized.
    check_capacity(timeline_, model_->tokenizer->tokens_min(size_bytes), true);
    const std::vector<SourcedToken> tokens =
        model_->tokenizer->encode(turn.segments, options.watch);
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
    if (reply && !prompted && !entries.empty()) { // a template whose replies need no prompt
        entries.back().turn |= TokenEntry::kReplyPrompt;
    }
    std::string pending = turn.pending_system; // what can fail comes first
    stasis::append(timeline_, entries, options);
    settings_.pending_system = std::move(pending);
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
