// Fits a description to a template: renders probe conversations whose contents are words that no
// template has, and derives the description from the text around them. chat_check.cpp then compares
// the description with the template on many more conversations.
#include "runtime/text/chat_probe.h"

#include <algorithm>

#include "format/state/error.h"

namespace stasis {

namespace {

// Contents of probes, and placeholders for the special texts. No template contains them, and no
// template's whitespace rules change them.
constexpr const char *kUser = "Qalpha1x", *kReply = "Qbravo2x", *kMore = "Qcharlie3x",
                     *kSystem = "Qdelta4x";
constexpr std::string_view kBos = "\x02[bos]\x03", kEos = "\x02[eos]\x03";
constexpr std::string_view kPadLeft = "\n \t\u00a0", kPadRight = "\u00a0\t \n";

[[noreturn]] void unfit(const char *what) {
    fail(Status::unsupported, "%s", what);
}

// Returns `text` cut at the only occurrence of `word`.
std::optional<std::pair<std::string, std::string>> cut(const std::string &text,
                                                       std::string_view word) {
    const size_t at = text.find(word);
    if (at == std::string::npos || text.find(word, at + 1) != std::string::npos) {
        return std::nullopt;
    }
    return std::pair(text.substr(0, at), text.substr(at + word.size()));
}

// Returns the text before, between and after the words, each of which must occur once, in this
// order.
std::optional<std::vector<std::string>> around(const std::string &text,
                                               std::initializer_list<const char *> words) {
    std::vector<std::string> parts;
    std::string rest = text;
    for (const char *word : words) {
        const auto both = cut(rest, word);
        if (!both || cut(text, word) == std::nullopt) {
            return std::nullopt;
        }
        parts.push_back(both->first);
        rest = both->second;
    }
    parts.push_back(rest);
    return parts;
}

std::string without_prefix(const std::string &text, const std::string &prefix,
                           const char *problem) {
    if (!text.starts_with(prefix)) {
        unfit(problem);
    }
    return text.substr(prefix.size());
}

std::string without_suffix(const std::string &text, const std::string &suffix,
                           const char *problem) {
    if (!text.ends_with(suffix)) {
        unfit(problem);
    }
    return text.substr(0, text.size() - suffix.size());
}

size_t common_suffix(const std::string &a, const std::string &b) {
    return static_cast<size_t>(std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).first -
                               a.rbegin());
}

void substitute(std::string &text, std::string_view from, std::string_view to) {
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
        text.replace(at, from.size(), to);
    }
}

class Fitter {
  public:
    explicit Fitter(Prober &prober) : probe_(prober) {}

    // The order matters: later steps use the parts found by earlier ones.
    ChatFormat run() {
        fit_turns();
        fit_opening();
        fit_last_reply();
        fit_first_system();
        fit_later_system();
        fit_trimming();
        fit_order();
        return std::move(format_);
    }

  private:
    using Parts = std::vector<std::string>;

    std::string need(const Conversation &messages, bool prompt, const char *problem) const {
        const auto text = probe_.render(messages, prompt);
        if (!text) {
            fail(Status::unsupported, "%s: %s", problem, probe_.refusal.c_str());
        }
        return *text;
    }

    // Derives prefixes and suffixes from "user", "user, assistant" and "user, assistant, user". The
    // text between two contents is the suffix of one turn and the prefix of the next. The boundary
    // is found by comparing the renderings.
    void fit_turns() {
        const char *once = "a turn's text does not come out once and whole";
        const auto one = around(need(user_, false, "it refuses a single user turn"), {kUser});
        const auto prompted = around(need(user_, true, "it refuses a single user turn"), {kUser});
        const auto three = around(need(dialogue_, false, "it refuses user, assistant, user"),
                                  {kUser, kReply, kMore});
        if (!one || !prompted || !three) {
            unfit(once);
        }
        before_user_ = (*one)[0];
        const std::string &user_reply = (*three)[1], &reply_user = (*three)[2];
        const auto ended_text = probe_.render(exchange_, false);
        ended_ = ended_text ? around(*ended_text, {kUser, kReply}) : std::nullopt;

        // The suffix of a reply is the end of "user, assistant", if a next turn keeps it.
        const std::string behind_reply = ended_ ? (*ended_)[2] : "";
        if (ended_ && reply_user.starts_with(behind_reply)) {
            format_.assistant.suffix = behind_reply;
            // The rendering has an end of its own: the suffix ends where the user's prefix begins.
        } else {
            format_.assistant.suffix =
                reply_user.substr(0, reply_user.size() - common_suffix(reply_user, before_user_));
            format_.closing =
                ended_ ? without_prefix(behind_reply, format_.assistant.suffix,
                                        "the end of an assistant turn changes with what follows")
                       : "";
        }
        // The other parts are what remains around the contents.
        format_.user.prefix = reply_user.substr(format_.assistant.suffix.size());
        format_.user.suffix = without_suffix((*one)[1], format_.closing,
                                             "a rendering ends differently after each role");
        format_.assistant.prefix = without_prefix(
            user_reply, format_.user.suffix, "the end of a user turn changes with what follows");
        format_.generation = without_prefix((*prompted)[1], format_.user.suffix,
                                            "the generation prompt changes the turn before it");
    }

    // The text before the first user turn beyond its prefix is the opening, or a default system
    // text.
    void fit_opening() {
        const std::string &prefix = format_.user.prefix;
        if (before_user_.ends_with(prefix)) {
            format_.opening = before_user_.substr(0, before_user_.size() - prefix.size());
            return;
        }
        const size_t at = before_user_.find(prefix);
        if (prefix.empty() || at == std::string::npos) {
            unfit("the first user turn starts unlike the others");
        }
        format_.opening = before_user_.substr(0, at);
        format_.default_system = before_user_.substr(at + prefix.size());
    }

    // A reply at the end may have a lead of its own, and lose leading newlines.
    void fit_last_reply() {
        const std::string lead = format_.user.suffix + format_.assistant.prefix;
        format_.renders_last_reply = ended_ && (*ended_)[1].starts_with(lead);
        if (format_.renders_last_reply) {
            format_.last_reply_lead = (*ended_)[1].substr(lead.size());
            const std::string text = "\n" + std::string(kReply);
            format_.last_reply_drops_newlines =
                !format_.last_reply_lead.empty() &&
                probe_.render({user_[0], {"assistant", text}}, false) ==
                    probe_.render(exchange_, false);
        }
    }

    void refuse_system(const char *problem) {
        format_.first_system = SystemPlace::refused;
        format_.system_problem = problem;
    }

    // A system text is refused, dropped, a turn of its own, or folded into the first user turn.
    void fit_first_system() {
        const auto text = probe_.render(with_system_, false);
        if (!text) {
            return;
        }
        if (*text == probe_.render(user_, false)) {
            format_.first_system = SystemPlace::dropped;
            return;
        }
        const auto parts = around(*text, {kSystem, kUser});
        if (!parts || (*parts)[2] != format_.user.suffix + format_.closing) {
            refuse_system("a system text comes out in a way that cannot be described");
            return;
        }

        // A turn of its own ends before the user turn's prefix.
        const std::string &before = (*parts)[0], &between = (*parts)[1];
        const std::string &prefix = format_.user.prefix;
        if (between.ends_with(prefix)) {
            format_.first_system = SystemPlace::turn;
            format_.system_opening = before.starts_with(kBos) ? std::string(kBos) : "";
            format_.system.prefix = before.substr(format_.system_opening.size());
            format_.system.suffix = between.substr(0, between.size() - prefix.size());
            const std::string empty =
                format_.system_opening + format_.system.prefix + format_.system.suffix;
            format_.system_skips_empty = // and not: an empty one looks like the default
                empty != format_.opening &&
                probe_.render({{"system", ""}, user_[0]}, false) == probe_.render(user_, false);
            return;
        }

        // Otherwise the text follows the user turn's prefix: it is folded into that turn.
        const size_t at = before.find(prefix);
        if (at == std::string::npos) {
            refuse_system("a system text comes out in a way that cannot be described");
            return;
        }
        format_.first_system = SystemPlace::folded;
        format_.system_opening = before.substr(0, at);
        format_.system.prefix = before.substr(at + prefix.size());
        format_.system.suffix = between;
    }

    // Tries a system text after an exchange, or, if the template refuses that, after a user turn.
    void fit_later_system() {
        const auto after_exchange = probe_.render(system_later_, false);
        const auto after_user = probe_.render(system_after_user_, false);
        const auto &text = after_exchange ? after_exchange : after_user;
        if (!text) {
            return;
        }
        const std::string &end = after_exchange ? format_.assistant.suffix : format_.user.suffix;
        const auto parts = after_exchange ? around(*text, {kUser, kReply, kSystem, kMore})
                                          : around(*text, {kUser, kSystem, kMore});
        if (!parts) {
            const bool dropped = after_exchange && *text == probe_.render(dialogue_, false);
            format_.later_system = dropped ? SystemPlace::dropped : SystemPlace::refused;
            return;
        }
        const std::string &before = (*parts)[parts->size() - 3];
        const std::string &between = (*parts)[parts->size() - 2];
        if (before.starts_with(end) && between.ends_with(format_.user.prefix)) {
            format_.later_system = SystemPlace::turn;
            format_.system_later.prefix = before.substr(end.size());
            format_.system_later.suffix =
                between.substr(0, between.size() - format_.user.prefix.size());
        }
    }

    // Returns whether whitespace around the content of message `at` is dropped; all or none on each
    // side.
    std::optional<std::pair<bool, bool>> trims(Conversation messages, size_t at) const {
        const std::string word = messages[at].text;
        const auto plain = probe_.render(messages, false);
        messages[at].text = std::string(kPadLeft) + word + std::string(kPadRight);
        const auto padded = probe_.render(messages, false);
        const auto a = plain ? cut(*plain, word) : std::nullopt;
        const auto b = padded ? cut(*padded, word) : std::nullopt;
        if (!a || !b) {
            return std::nullopt;
        }
        const bool left = b->first == a->first, right = b->second == a->second;
        if ((!left && b->first != a->first + std::string(kPadLeft)) ||
            (!right && b->second != std::string(kPadRight) + a->second)) {
            return std::nullopt;
        }
        return std::pair(left, right);
    }

    void fit_trimming() {
        const auto set = [&](TurnFormat &turn, const Conversation &messages, size_t at) {
            const auto both = trims(messages, at);
            if (!both) {
                return false;
            }
            std::tie(turn.trim_left, turn.trim_right) = *both;
            return true;
        };
        if (!set(format_.user, dialogue_, 2) || !set(format_.assistant, dialogue_, 1)) {
            unfit("whitespace around a content is changed in a way that cannot be described");
        }
        if (format_.first_system == SystemPlace::turn ||
            format_.first_system == SystemPlace::folded) {
            if (!set(format_.system, with_system_, 0)) {
                refuse_system("whitespace around a system text is changed in parts");
            }
        }
        if (format_.later_system == SystemPlace::turn) {
            const bool behind_exchange = probe_.render(system_later_, false).has_value();
            if (!set(format_.system_later, behind_exchange ? system_later_ : system_after_user_,
                     behind_exchange ? 2 : 1)) {
                format_.later_system = SystemPlace::refused;
            }
        }
        // A user text that keeps its leading whitespace only after a system text is trimmed
        // together with it.
        TurnFormat folded;
        const bool by_default = !format_.default_system.empty();
        if (by_default || format_.first_system == SystemPlace::folded) {
            format_.strips_folded =
                (by_default ? set(folded, user_, 0) : set(folded, with_system_, 1)) &&
                format_.user.trim_left && !folded.trim_left && folded.trim_right;
        }
    }

    // Tries every role in every situation.
    void fit_order() {
        const bool behind_exchange = probe_.render(system_later_, false).has_value();
        const std::pair<Before, Conversation> situations[] = {
            {Before::start, {}},
            {Before::first_system, {with_system_[0]}},
            {Before::user, user_},
            {Before::assistant, exchange_},
            {Before::later_system,
             behind_exchange
                 ? Conversation(system_later_.begin(), system_later_.begin() + 3)
                 : Conversation(system_after_user_.begin(), system_after_user_.begin() + 2)}};
        for (const auto &[before, base] : situations) {
            for (const Speaker speaker : {Speaker::system, Speaker::user, Speaker::assistant}) {
                static constexpr const char *kRoles[] = {"system", "user", "assistant"};
                static constexpr const char *kTexts[] = {"Qsystem5x", "Quser6x", "Qreply7x"};
                const auto i = static_cast<size_t>(speaker);
                const bool system = speaker == Speaker::system;
                const SystemPlace place =
                    before == Before::start ? format_.first_system : format_.later_system;
                Conversation messages = base;
                messages.push_back({kRoles[i], kTexts[i]});
                follows(format_, before, speaker) =
                    !(system && place == SystemPlace::refused) &&
                    !(before == Before::first_system &&
                      format_.first_system == SystemPlace::refused) &&
                    probe_.render(messages, true).has_value();
            }
        }
        if (format_.first_system != SystemPlace::refused) { // it may need a turn after it
            follows(format_, Before::start, Speaker::system) = true;
        }
    }

    const Conversation user_ = {{"user", kUser}};
    const Conversation exchange_ = {{"user", kUser}, {"assistant", kReply}};
    const Conversation dialogue_ = {{"user", kUser}, {"assistant", kReply}, {"user", kMore}};
    const Conversation with_system_ = {{"system", kSystem}, {"user", kUser}};
    const Conversation system_later_ = {
        {"user", kUser}, {"assistant", kReply}, {"system", kSystem}, {"user", kMore}};
    const Conversation system_after_user_ = {{"user", kUser}, {"system", kSystem}, {"user", kMore}};

    Prober &probe_;
    ChatFormat format_;
    std::string before_user_;
    std::optional<Parts> ended_; // around the texts of "user, assistant", unless refused
};

// Replaces the placeholders by the model's special texts.
void put_special_texts(ChatFormat &format, std::string_view bos, std::string_view eos) {
    for (std::string *text :
         {&format.opening, &format.user.prefix, &format.user.suffix, &format.assistant.prefix,
          &format.assistant.suffix, &format.generation, &format.closing, &format.system.prefix,
          &format.system.suffix, &format.system_opening, &format.default_system,
          &format.system_later.prefix, &format.system_later.suffix, &format.last_reply_lead}) {
        substitute(*text, kBos, bos);
        substitute(*text, kEos, eos);
    }
}

} // namespace

std::optional<std::string> Prober::render(const Conversation &messages, bool prompt) {
    jinja::List list;
    for (const Message &message : messages) {
        list.push_back(jinja::make_dict({{"role", message.role}, {"content", message.text}}));
    }
    // The variables that transformers' apply_chat_template passes: no tools, no documents, the
    // special tokens that the tokenizer has.
    jinja::Dict variables = {{"messages", jinja::make_list(std::move(list))},
                             {"tools", jinja::Value(jinja::Value::Data(jinja::None{}))},
                             {"documents", jinja::Value(jinja::Value::Data(jinja::None{}))},
                             {"add_generation_prompt", jinja::Value(jinja::Value::Data(prompt))}};
    if (!bos.empty()) {
        variables.emplace_back("bos_token", bos);
    }
    if (!eos.empty()) {
        variables.emplace_back("eos_token", eos);
    }
    // Each rendering has a limit of its own, within the limit of all.
    const size_t given = std::min(budget.left, kRenderBudget);
    jinja::Budget own{given, false};
    std::optional<std::string> text;
    try {
        text = jinja.render(variables, date, own);
    } catch (const jinja::Refusal &error) {
        refusal = error.what();
    } catch (const Error &error) { // a template may fail on input it does not expect
        refusal = error.what();
    }
    budget.left -= given - own.left;
    budget.exhausted = budget.exhausted || own.exhausted;
    return text;
}

ChatFormat fit_template(std::string_view source, std::string_view bos_text,
                        std::string_view eos_text, std::optional<std::time_t> date) {
    const jinja::Template jinja(source);
    // Published templates need under a million units for all probes.
    Prober prober{jinja,
                  std::string(bos_text.empty() ? "" : kBos),
                  std::string(eos_text.empty() ? "" : kEos),
                  date,
                  {kProbeBudget, false},
                  ""};
    ChatFormat format = Fitter(prober).run();
    put_special_texts(format, bos_text, eos_text);
    prober.bos = bos_text;
    prober.eos = eos_text;
    check_format(format, prober, source);
    if (prober.budget.exhausted) {
        unfit("it takes too many steps");
    }
    return format;
}

} // namespace stasis
