// Lays out a rendered conversation: guards, segments, and where each message ends.
#include "runtime/session/chat_layout.h"

#include <algorithm>

namespace stasis {

namespace {

// Put inside markers of special tokens that a message contains, so that they stay text. A
// private-use character, of which the template knows nothing.
constexpr std::string_view kGuard = "\U000F0000";

jinja::Value guarded(const jinja::Value &value, const Tokenizer &tokenizer) {
    if (const std::string *text = value.text()) {
        if (text->find(kGuard) != std::string::npos) {
            fail(Status::invalid_argument,
                 "the conversation contains the character U+F0000, which is reserved");
        }
        return tokenizer.guarded(*text, kGuard);
    }
    if (const jinja::ListValue *list = value.list()) {
        jinja::List items;
        for (const jinja::Value &item : list->items) {
            items.push_back(guarded(item, tokenizer));
        }
        return jinja::make_list(std::move(items));
    }
    if (const jinja::DictValue *dict = value.dict()) {
        jinja::Dict items;
        for (const auto &[name, item] : dict->items) {
            items.emplace_back(name, guarded(item, tokenizer));
        }
        return jinja::make_dict(std::move(items));
    }
    return value;
}

} // namespace

ChatInput guarded(ChatInput input, const Tokenizer &tokenizer) {
    for (jinja::Value &message : input.messages) {
        message = guarded(message, tokenizer);
    }
    for (auto &[name, value] : input.variables) {
        value = guarded(value, tokenizer);
    }
    return input;
}

// Returns the text cut at each guard, which no marker crosses.
std::vector<Segment> segments_of(std::string_view text) {
    std::vector<Segment> segments;
    while (true) {
        const size_t at = std::min(text.find(kGuard), text.size());
        segments.push_back({std::string(text.substr(0, at)), TokenSource::templated, true});
        if (at == text.size()) {
            segments.front().start = true;
            return segments;
        }
        text.remove_prefix(at + kGuard.size());
    }
}

std::string without_guards(std::string_view text) {
    std::string plain;
    plain.reserve(text.size());
    for (size_t at = 0; (at = text.find(kGuard)) != std::string_view::npos;) {
        plain.append(text, 0, at);
        text.remove_prefix(at + kGuard.size());
    }
    return plain.append(text);
}

namespace {

// A turn has few messages after what is known, so their beginnings are rendered alone.
constexpr size_t kAlone = 4;
constexpr size_t kUnknown = SIZE_MAX;

size_t agreeing(std::string_view a, std::string_view b) {
    return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                               a.begin());
}

// A beginning that the template refuses says nothing about its end.
bool refuses(const Error &error) {
    return error.status() == Status::invalid_argument || error.status() == Status::unsupported;
}

// How far renderings of beginnings agree with a text.
class Agreements {
  public:
    Agreements(std::string_view text, size_t messages, size_t otherwise)
        : bytes(messages + 1, kUnknown), text_(text), otherwise_(otherwise) {}

    void take(const jinja::Beginning &beginning) {
        // What they share has only grown, and it agrees up to `shared_` or parts there.
        const std::string more = without_guards(beginning.shared.substr(read_));
        if (shared_ == begin_) {
            shared_ += agreeing(more, text_.substr(std::min(begin_, text_.size())));
        }
        begin_ += more.size();
        read_ = beginning.shared.size();
        size_t &end = bytes[beginning.count];
        end = beginning.refused ? otherwise_
              : shared_ != begin_
                  ? shared_
                  : begin_ + agreeing(without_guards(beginning.rest), text_.substr(begin_));
    }

    std::vector<size_t> bytes; // by the number of messages

  private:
    std::string_view text_;
    size_t otherwise_;
    size_t read_ = 0;   // bytes of what they share
    size_t begin_ = 0;  // of it, without guards
    size_t shared_ = 0; // bytes of it that agree
};

std::vector<size_t> agreements(const ChatTemplate &chat, const ChatInput &input,
                               std::string_view text, size_t otherwise, const Watch &watch) {
    Agreements agreements(text, input.messages.size(), otherwise);
    try {
        chat.render_beginnings(input, [&](const jinja::Beginning &beginning) {
            watch.look(0, 0);
            agreements.take(beginning);
        });
    } catch (const Error &error) {
        if (!refuses(error)) {
            throw;
        }
    }
    return std::move(agreements.bytes);
}

size_t agreement(const ChatTemplate &chat, const ChatInput &input, size_t count,
                 std::string_view text, size_t otherwise) {
    try {
        return agreeing(without_guards(chat.render(input, count, false)), text);
    } catch (const Error &error) {
        if (!refuses(error)) {
            throw;
        }
        return otherwise;
    }
}

} // namespace

Layout lay_out(const ChatTemplate &chat, const ChatInput &input, std::string_view text, bool reply,
               size_t known, const Watch &watch) {
    Layout layout{{}, without_guards(text)};
    const size_t count = input.messages.size();
    layout.ends.assign(count, 0);
    std::vector<size_t> together;
    size_t limit = layout.text.size();
    for (size_t i = count; i-- > 0 && limit > known;) {
        size_t end = limit;
        watch.look(0, 0);
        if (i + 1 < count || reply) {
            if (together.empty() && count - i > kAlone) {
                together = agreements(chat, input, layout.text, known, watch);
            }
            const bool alone = together.empty() || together[i + 1] == kUnknown;
            end = alone ? agreement(chat, input, i + 1, layout.text, known) : together[i + 1];
        }
        limit = layout.ends[i] = std::min(end, limit);
    }
    return layout;
}

} // namespace stasis
