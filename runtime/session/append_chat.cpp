// Conversations given whole, as JSON: they are rendered by the model's own template and compared
// with the log, and what the log lacks is appended. The log stays the only state.
#include <algorithm>

#include "runtime/host/utf8.h"
#include "runtime/session/chat_layout.h"
#include "runtime/session/session.h"
#include "runtime/text/chat_input.h"

namespace stasis {

namespace {

struct Match {
    uint64_t position = 0; // tokens of the log
    size_t tokens = 0;     // tokens of the rendering that spell the same
};

// Returns the longest beginnings of both that spell the same. Drawn tokens may divide a text
// otherwise than the tokenizer does; special tokens must be the same.
Match matched(const TokenLog &log, std::span<const SourcedToken> tokens,
              const Tokenizer &tokenizer) {
    Match both;
    std::string ours, theirs; // spelled by one side and not yet by the other
    for (Match at;;) {
        if (ours.empty() && theirs.empty()) {
            both = at;
        }
        const bool takes_ours = ours.empty(), takes_theirs = theirs.empty();
        if ((takes_ours && at.position == log.size()) ||
            (takes_theirs && at.tokens == tokens.size())) {
            return both;
        }
        const uint32_t our = takes_ours ? log[at.position].token : 0;
        const uint32_t their = takes_theirs ? tokens[at.tokens].token : 0;
        if (takes_ours && takes_theirs && our == their) {
            ++at.position;
            ++at.tokens;
            continue;
        }
        if ((takes_ours && (our >= tokenizer.size() || tokenizer.is_special(our))) ||
            (takes_theirs && tokenizer.is_special(their))) {
            return both;
        }
        if (takes_ours) {
            ours = tokenizer.piece_bytes(our);
            ++at.position;
        }
        if (takes_theirs) {
            theirs = tokenizer.piece_bytes(their);
            ++at.tokens;
        }
        const size_t same = std::min(ours.size(), theirs.size());
        if (same == 0 || ours.compare(0, same, theirs, 0, same) != 0) {
            return both;
        }
        ours.erase(0, same);
        theirs.erase(0, same);
    }
}

const std::string *text_member(const jinja::Value &message, std::string_view name) {
    const jinja::Value *value = message.dict()->find(name);
    return value != nullptr ? value->text() : nullptr;
}

Role role_of(const jinja::Value &message) {
    const std::string *role = text_member(message, "role");
    return *role == "system" || *role == "developer" ? Role::system
           : *role == "user"                         ? Role::user
           : *role == "assistant"                    ? Role::assistant
                                                     : Role::other;
}

// Gives tokens their role, turn and source by the places of their first bytes.
class EntryWriter {
  public:
    EntryWriter(const Layout &layout, const ChatInput &input, size_t known)
        : layout_(layout), input_(input) {
        while (message_ < layout.ends.size() && layout.ends[message_] <= known) {
            ++message_;
        }
        const size_t begin = message_ > 0 ? layout.ends[message_ - 1] : 0;
        started_ = message_ < layout.ends.size() && begin < known; // it goes on in this append
        find_content(begin);
    }

    TokenEntry write(uint32_t token, size_t begin, size_t end) {
        while (message_ < layout_.ends.size() && layout_.ends[message_] <= begin) {
            const size_t next = layout_.ends[message_++];
            started_ = false;
            find_content(next);
        }
        TokenEntry entry{token, 0, TokenSource::templated, 0};
        const bool prompt = message_ == layout_.ends.size();
        if (end > content_ && begin < content_end_) {
            entry.source = TokenSource::text;
        }
        const Role role = prompt ? Role::assistant : role_of(input_.messages[message_]);
        entry.turn = static_cast<uint8_t>(role) | (started_ ? 0 : TokenEntry::kTurnStart) |
                     (prompt ? TokenEntry::kReplyPrompt : 0);
        started_ = true;
        return entry;
    }

  private:
    void find_content(size_t from) {
        content_ = content_end_ = 0;
        if (message_ == layout_.ends.size()) {
            return;
        }
        const std::string *text = text_member(input_.messages[message_], "content");
        const std::string bare =
            text != nullptr ? std::string(jinja::strip(without_guards(*text), true, true)) : "";
        if (bare.empty()) {
            return;
        }
        // It begins before the message's end.
        const std::string_view within = layout_.text;
        const size_t at =
            within.substr(0, layout_.ends[message_] + bare.size() - 1).find(bare, from);
        if (at != std::string::npos) {
            content_ = at;
            content_end_ = at + bare.size();
        }
    }

    const Layout &layout_;
    const ChatInput &input_;
    size_t message_ = 0;
    bool started_ = false;
    size_t content_ = 0, content_end_ = 0;
};

size_t bytes_of(const Tokenizer &tokenizer, std::span<const SourcedToken> tokens) {
    size_t bytes = 0;
    for (const SourcedToken &token : tokens) {
        bytes += tokenizer.piece_bytes(token.token).size();
    }
    return bytes;
}

} // namespace

const ChatTemplate &Session::own_chat() const {
    if (model_->tokenizer == nullptr) {
        fail(Status::unsupported, "messages need a tokenizer, which the model does not have");
    }
    if (!model_->chat) {
        fail(Status::unsupported, "the model's files have no chat template");
    }
    return *model_->chat;
}

// A conversation as its template renders it, and how far the log spells the same.
struct Session::RenderedChat {
    ChatInput input; // with guards, as is the text
    std::string text;
    std::vector<SourcedToken> tokens;
    uint64_t position = 0; // of the log
    size_t matched = 0;    // tokens of the rendering
};

Session::RenderedChat Session::render_chat(const ChatInput &given, bool reply,
                                           const Watch &watch) const {
    const ChatTemplate &chat = own_chat();
    const Tokenizer &tokenizer = *model_->tokenizer;
    if (!settings_.pending_system.empty()) {
        fail(Status::invalid_argument,
             "a system text waits for the first user turn: rewind to 0 to drop it");
    }
    RenderedChat rendered;
    rendered.input = guarded(given, tokenizer);
    rendered.text = chat.render(rendered.input, rendered.input.messages.size(), reply);
    rendered.tokens = tokenizer.encode(segments_of(rendered.text), watch);
    const Match match = matched(timeline_.log, rendered.tokens, tokenizer);
    rendered.position = match.position;
    rendered.matched = match.tokens;
    return rendered;
}

ChatTokens Session::chat_tokens(const ChatInput &input, bool reply, const Watch &watch) const {
    const RenderedChat rendered = render_chat(input, reply, watch);
    ChatTokens lacking{rendered.position, {}};
    for (size_t i = rendered.matched; i < rendered.tokens.size(); ++i) {
        lacking.tokens.push_back(rendered.tokens[i].token);
    }
    return lacking;
}

std::vector<TokenEntry> Session::chat_entries(const ChatInput &given, bool reply,
                                              uint64_t &position, const Watch &watch) const {
    RenderedChat rendered = render_chat(given, reply, watch);
    position = rendered.position;
    if (position < timeline_.position()) {
        const uint32_t token = timeline_.log[position].token;
        fail(Status::conflict,
             "the log differs from the conversation from position %llu on, where it has the token "
             "%u: rewind to that position and append again",
             static_cast<unsigned long long>(position), token);
    }

    // Some vocabularies put a blank before a text.
    const Tokenizer &tokenizer = *model_->tokenizer;
    const std::span<const SourcedToken> all(rendered.tokens), added = all.subspan(rendered.matched);
    const size_t bytes = bytes_of(tokenizer, all), spelled = without_guards(rendered.text).size();
    const size_t lead = bytes > spelled ? bytes - spelled : 0;
    size_t at = bytes_of(tokenizer, all.first(rendered.matched));
    at -= std::min(at, lead);
    const Layout layout = lay_out(own_chat(), rendered.input, rendered.text, reply, at, watch);
    EntryWriter writer(layout, rendered.input, at);
    std::vector<TokenEntry> entries;
    entries.reserve(added.size());
    for (const SourcedToken &token : added) {
        const size_t end = at + tokenizer.piece_bytes(token.token).size();
        entries.push_back(writer.write(token.token, at, end));
        at = end;
    }
    // The template needs no generation prompt, so the last token is marked.
    if (reply && !entries.empty() && (entries.back().turn & TokenEntry::kReplyPrompt) == 0) {
        entries.back().turn |= TokenEntry::kReplyPrompt;
    }
    return entries;
}

void Session::append_chat(const ChatInput &input, bool reply, uint64_t &position,
                          const AppendOptions &options) {
    append_entries(chat_entries(input, reply, position, options.watch), options);
    position = timeline_.position();
}

jinja::Value Session::reply_message(const jinja::Value &tools, bool complete) const {
    const ChatTemplate &chat = own_chat();
    const Tokenizer &tokenizer = *model_->tokenizer;
    const TokenLog &log = timeline_.log;
    // The reply is what follows the last generation prompt.
    uint64_t begin = log.size(), end = log.size();
    while (begin > 0 && (log[begin - 1].turn & TokenEntry::kReplyPrompt) == 0) {
        --begin;
    }
    if (begin == 0) {
        fail(Status::not_found, "the log has no generation prompt that a reply follows");
    }
    uint64_t prompt = begin;
    while (prompt > 0 && (log[prompt - 1].turn & TokenEntry::kReplyPrompt) != 0) {
        --prompt;
    }
    // It ends with an end token, or before what the template has put behind it.
    const auto &ends = model_->config.end_tokens;
    for (uint64_t i = begin; i < log.size(); ++i) {
        if (log[i].source == TokenSource::templated ||
            std::find(ends.begin(), ends.end(), log[i].token) != ends.end()) {
            end = i;
            complete = true;
            break;
        }
    }
    const auto spelled = [&](uint64_t from, uint64_t to) {
        std::vector<uint32_t> tokens;
        for (uint64_t i = from; i < to; ++i) {
            tokens.push_back(log[i].token);
        }
        std::string text = tokenizer.decode(tokens, false, true);
        text.resize(complete_utf8(text));
        return well_formed_utf8(text); // tokens may be any bytes, JSON may not
    };
    return parse_reply(chat.replies(), spelled(prompt, begin), spelled(begin, end), complete,
                       tools);
}

} // namespace stasis
