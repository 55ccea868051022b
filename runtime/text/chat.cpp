// Renders turns and whole conversations from a template's description. A conversation is rendered
// turn by turn, so that both always agree.
#include "runtime/text/chat.h"

#include <algorithm>

#include "format/state/error.h"
#include "runtime/text/chat_format.h"
#include "runtime/text/jinja/jinja.h"
#include "runtime/text/tokenizer_config.h"

namespace stasis {

struct ChatTemplate::Parts {
    ChatFormat format;
    std::string problem;
    // The model's own template; null, with the reason, if there is none or it cannot be read.
    std::unique_ptr<const jinja::Template> own;
    std::string own_problem =
        "the chat template is a built-in one, which has no such conversations";
    std::string bos_text, eos_text;
    std::optional<std::time_t> date;
    ReplyFormat replies;
};

namespace {

Speaker speaker_of(std::string_view role) {
    if (role == "system" || role == "user" || role == "assistant") {
        return role == "system" ? Speaker::system
               : role == "user" ? Speaker::user
                                : Speaker::assistant;
    }
    fail(Status::invalid_argument,
         "unknown role '%.40s': a turn is by 'system', 'user' or 'assistant'",
         std::string(role).c_str());
}

Before situation(const ChatPosition &position) {
    if (!position.pending_system.empty()) {
        return Before::first_system;
    }
    switch (position.last) {
    case Role::system:
        return position.user_seen ? Before::later_system : Before::first_system;
    case Role::user:
        return Before::user;
    case Role::assistant:
        return Before::assistant;
    default:
        return Before::start;
    }
}

void check_order(const ChatFormat &format, Before before, Speaker speaker) {
    static constexpr const char *kRoles[] = {"system", "user", "assistant"};
    static constexpr const char *kBefore[] = {"", "system", "user", "assistant", "system"};
    if (format.follows[static_cast<size_t>(before)][static_cast<size_t>(speaker)]) {
        return;
    }
    const char *role = kRoles[static_cast<size_t>(speaker)];
    if (speaker == Speaker::system && !format.system_problem.empty()) {
        fail(Status::unsupported, "chat template '%s': %s", format.name.c_str(),
             format.system_problem.c_str());
    }
    if (before == Before::start) {
        fail(Status::invalid_argument,
             "chat template '%s' does not let a conversation start with the role '%s'",
             format.name.c_str(), role);
    }
    fail(Status::invalid_argument,
         "chat template '%s' does not let the role '%s' follow the role '%s'", format.name.c_str(),
         role, kBefore[static_cast<size_t>(before)]);
}

void check_text(const ChatFormat &format, Speaker speaker, std::string_view text) {
    for (const auto &[role, special] : format.special_texts) {
        if (role == speaker && text.find(special) != std::string_view::npos) {
            fail(Status::unsupported,
                 "chat template '%s' treats '%s' inside a text specially; a text that contains it "
                 "cannot be rendered turn by turn",
                 format.name.c_str(), special.c_str());
        }
    }
}

std::string_view trimmed(std::string_view text, const TurnFormat &format) {
    return jinja::strip(text, format.trim_left, format.trim_right);
}

struct Writer {
    std::vector<Segment> segments;

    void add(std::string_view text, TokenSource source, TurnPart part = TurnPart::body) {
        if (text.empty()) {
            return;
        }
        if (segments.empty() || segments.back().source != source || segments.back().part != part) {
            segments.push_back({"", source, source == TokenSource::templated, part});
        }
        segments.back().text += text;
    }
    void templated(std::string_view text, TurnPart part = TurnPart::body) {
        add(text, TokenSource::templated, part);
    }
    void content(std::string_view text) { add(text, TokenSource::text); }

    // Adds a user text after a system text in the same turn, where both are trimmed as one.
    void stripped_content(std::string_view text) {
        text = jinja::strip(text, false, true);
        content(text);
        while (text.empty() && !segments.empty()) {
            std::string &last = segments.back().text;
            last.resize(jinja::strip(last, false, true).size());
            if (!last.empty()) {
                return;
            }
            segments.pop_back();
        }
    }
};

// Writes the first user turn, which contains the system text or the template's default.
void write_folded(const ChatFormat &format, Writer &out, const std::string *system,
                  std::string_view text) {
    Writer joined; // system and user text
    if (system != nullptr) {
        joined.templated(format.system.prefix);
        joined.content(trimmed(*system, format.system));
        joined.templated(format.system.suffix);
    } else {
        joined.templated(format.default_system);
    }
    if (format.strips_folded) {
        joined.stripped_content(text);
    } else {
        joined.content(trimmed(text, format.user));
    }
    out.templated(format.user.prefix);
    for (const Segment &segment : joined.segments) {
        out.add(segment.text, segment.source);
    }
    out.templated(format.user.suffix);
}

void write_turn(Writer &out, const TurnFormat &format, std::string_view lead,
                std::string_view text) {
    out.templated(format.prefix);
    out.templated(lead);
    out.content(trimmed(text, format));
    out.templated(format.suffix);
}

// Returns the part of the assistant's suffix that a generated reply still lacks.
std::string_view missing_end(const ChatFormat &format, const ChatPosition &before) {
    std::string_view suffix = format.assistant.suffix;
    const size_t tail =
        before.reply_tail.empty() ? std::string_view::npos : suffix.find(before.reply_tail);
    return tail == std::string_view::npos ? suffix : suffix.substr(tail + before.reply_tail.size());
}

} // namespace

RenderedTurn render_turn(const ChatFormat &format, const ChatPosition &before,
                         std::string_view role, std::string_view text, bool reply,
                         bool last_reply) {
    const Speaker speaker = speaker_of(role);
    const Before situated = situation(before);
    check_order(format, situated, speaker);
    check_text(format, speaker, text);

    // A system text without a turn of its own renders nothing now.
    const bool opens = !before.started, first = situated == Before::start;
    const bool pending =
        format.first_system == SystemPlace::folded && situated == Before::first_system;
    const SystemPlace place = first ? format.first_system : format.later_system;
    if (speaker == Speaker::system &&
        (place == SystemPlace::folded || place == SystemPlace::dropped ||
         (text.empty() && format.system_skips_empty))) {
        if (reply) {
            fail(Status::invalid_argument,
                 "chat template '%s' gives a system text no turn of its own: no reply can follow",
                 format.name.c_str());
        }
        return {{}, place == SystemPlace::folded ? std::string(text) : before.pending_system};
    }

    // The turn: the end of an open reply, the opening, the text, the generation prompt.
    Writer out;
    if (before.reply_open) {
        out.templated(missing_end(format, before), TurnPart::closing);
    }
    if (opens) {
        const bool system = pending || speaker == Speaker::system;
        out.templated(system ? format.system_opening : format.opening);
    }
    if (speaker == Speaker::user && (pending || (opens && !format.default_system.empty()))) {
        write_folded(format, out, pending ? &before.pending_system : nullptr, text);
    } else if (speaker == Speaker::user) {
        write_turn(out, format.user, "", text);
    } else if (speaker == Speaker::assistant) {
        const bool leads = last_reply && before.user_seen && !format.last_reply_lead.empty();
        if (leads && format.last_reply_drops_newlines) {
            text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
        }
        write_turn(out, format.assistant, leads ? format.last_reply_lead : "", text);
    } else {
        write_turn(out, first ? format.system : format.system_later, "", text);
    }
    if (reply) {
        out.templated(format.generation, TurnPart::reply);
    }
    if (opens && !out.segments.empty()) {
        out.segments.front().start = true;
    }
    return {std::move(out.segments), ""};
}

std::string render_conversation(const ChatFormat &format, std::span<const Message> messages,
                                bool generation_prompt) {
    std::string out;
    ChatPosition position;
    for (const Message &message : messages) {
        const bool last_reply = &message == &messages.back() && message.role == "assistant";
        if (last_reply && !format.renders_last_reply) {
            fail(Status::unsupported,
                 "chat template '%s' renders an assistant's text at the end of a conversation "
                 "unlike one that a turn follows",
                 format.name.c_str());
        }
        const RenderedTurn turn =
            render_turn(format, position, message.role, message.text, false, last_reply);
        for (const Segment &segment : turn.segments) {
            out += segment.text;
        }
        const Speaker speaker = speaker_of(message.role);
        position.started = position.started || !turn.segments.empty();
        position.user_seen = position.user_seen || speaker == Speaker::user;
        position.last = speaker == Speaker::system ? Role::system
                        : speaker == Speaker::user ? Role::user
                                                   : Role::assistant;
        position.pending_system = turn.pending_system;
    }
    // All system texts got no turn, so the opening is still missing.
    if (!position.started) {
        out += format.first_system == SystemPlace::folded ? format.system_opening : format.opening;
    }
    return out + (generation_prompt ? format.generation : format.closing);
}

const std::string &ChatTemplate::name() const {
    return parts_->format.name;
}
const std::string &ChatTemplate::problem() const {
    return parts_->problem;
}

RenderedTurn ChatTemplate::turn(const ChatPosition &before, std::string_view role,
                                std::string_view text, bool reply) const {
    if (!parts_->problem.empty()) {
        fail(Status::unsupported, "%s", parts_->problem.c_str());
    }
    if (role == "system" && text.empty() && !before.started &&
        parts_->format.first_system == SystemPlace::folded) {
        fail(Status::invalid_argument,
             "chat template '%s' folds a system text into the first user turn, where an empty one "
             "would be lost",
             parts_->format.name.c_str());
    }
    return render_turn(parts_->format, before, role, text, reply);
}

std::string ChatTemplate::render(std::span<const Message> messages, bool generation_prompt) const {
    if (!parts_->problem.empty()) {
        fail(Status::unsupported, "%s", parts_->problem.c_str());
    }
    if (messages.empty()) {
        fail(Status::invalid_argument, "a conversation without messages cannot be rendered");
    }
    return render_conversation(parts_->format, messages, generation_prompt);
}

ChatTemplate ChatTemplate::named(std::string_view name, std::string_view bos_text,
                                 std::string_view eos_text) {
    ChatTemplate out;
    out.parts_ = std::make_shared<const Parts>(Parts{builtin_format(name, bos_text, eos_text)});
    return out;
}

// What transformers passes.
jinja::Dict ChatTemplate::variables(const ChatInput &input, bool generation_prompt) const {
    if (parts_->own == nullptr) {
        fail(Status::unsupported, "%s", parts_->own_problem.c_str());
    }
    jinja::Dict variables = input.variables;
    variables.emplace_back("add_generation_prompt",
                           jinja::Value(jinja::Value::Data(generation_prompt)));
    for (const auto &[name, text] :
         {std::pair("bos_token", &parts_->bos_text), std::pair("eos_token", &parts_->eos_text)}) {
        if (!text->empty()) {
            variables.emplace_back(name, *text);
        }
    }
    return variables;
}

namespace {

// The limit grows with the conversation, at which some templates look many times.
jinja::Budget budget_for(const ChatInput &input) {
    return {10'000'000 + 1000 * input.size_bytes, false};
}

[[noreturn]] void refused_by(const jinja::Refusal &refusal) {
    fail(Status::invalid_argument, "the chat template refuses the conversation: %s",
         refusal.what());
}

} // namespace

std::string ChatTemplate::render(const ChatInput &input, size_t count,
                                 bool generation_prompt) const {
    jinja::Dict all = variables(input, generation_prompt);
    const auto messages = input.messages.begin();
    all.emplace_back("messages", jinja::make_list({messages, messages + ptrdiff_t(count)}));
    jinja::Budget budget = budget_for(input);
    try {
        return parts_->own->render(all, input.date ? input.date : parts_->date, budget);
    } catch (const jinja::Refusal &refusal) {
        refused_by(refusal);
    }
}

void ChatTemplate::render_beginnings(const ChatInput &input,
                                     const jinja::TakeBeginning &take) const {
    const jinja::Dict all = variables(input, false);
    jinja::Budget budget = budget_for(input);
    try {
        parts_->own->render_beginnings(all, input.messages, input.date ? input.date : parts_->date,
                                       budget, take);
    } catch (const jinja::Refusal &refusal) {
        refused_by(refusal);
    }
}

const ReplyFormat &ChatTemplate::replies() const {
    return parts_->replies;
}

std::optional<ChatTemplate> ChatTemplate::recognise(const ModelFolder &folder,
                                                    std::optional<std::time_t> date) {
    const TokenizerConfig config = read_tokenizer_config(folder);
    if (config.chat_template.empty()) {
        return std::nullopt;
    }
    return recognise_text(config.chat_template, config.bos_text, config.eos_text, date);
}

std::optional<ChatTemplate> ChatTemplate::recognise_text(std::string_view jinja,
                                                         std::string_view bos_text,
                                                         std::string_view eos_text,
                                                         std::optional<std::time_t> date) {
    Parts parts;
    parts.bos_text = bos_text;
    parts.eos_text = eos_text;
    parts.date = date;
    parts.replies = reply_format(jinja);
    try {
        parts.own = std::make_unique<const jinja::Template>(jinja);
    } catch (const Error &error) {
        parts.own_problem = std::string("the chat template cannot be run: ") + error.what();
    }
    try {
        parts.format = fit_template(jinja, bos_text, eos_text, date);
        parts.format.name = family_of(parts.format);
    } catch (const Error &error) {
        parts.format = {};
        parts.problem =
            std::string("the chat template cannot be described turn by turn: ") + error.what();
    }
    ChatTemplate out;
    out.parts_ = std::make_shared<const Parts>(std::move(parts));
    return out;
}

} // namespace stasis
