// Which tokens of a reply its reader sees. The library reads thoughts, content and calls out of a
// reply's text (runtime/text/reply.h) and does not say where they stood: the content is found again
// here, from the front, past what the families' forms put around it.
#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "tools/serve/api/reply.h"

namespace serve::api {

namespace {

constexpr size_t kNone = std::string_view::npos;

struct Markers {
    std::string_view open, close; // without `close` it goes to the end
};
constexpr Markers kThoughts[] = {
    {"<think>", "</think>"}, {"[THINK]", "[/THINK]"}, {"<|channel>thought\n", "<channel|>"}};
constexpr Markers kCalls[] = {
    {"<tool_call>", "</tool_call>"}, {"<|tool_call>", "<tool_call|>"}, {"[TOOL_CALLS]", ""}};
// gpt-oss: each message has a header before its text.
constexpr std::string_view kHeader = "<|channel|>", kText = "<|message|>", kStart = "<|start|>";
constexpr std::string_view kTextEnds[] = {"<|end|>", "<|call|>", "<|return|>", kStart};

struct Walk {
    std::string_view text, content; // of the reply as it was drawn; what is looked for in it
    size_t at = 0, found = 0;       // so far, of each
    std::vector<bool> seen;         // by byte of `text`

    bool here(std::string_view marker) const { return text.substr(at).starts_with(marker); }
    // Whether the content has the marker as well, as far as it goes: then it is no marker.
    bool is_content(std::string_view marker) const {
        const std::string_view rest = content.substr(found);
        return rest.starts_with(marker) || marker.starts_with(rest);
    }
    void skip_behind(std::string_view marker, size_t from) {
        const size_t end = marker.empty() ? kNone : text.find(marker, from);
        at = end == kNone ? text.size() : end + marker.size();
    }
    bool skip_marked(const Markers &markers) {
        if (!here(markers.open) || is_content(markers.open)) {
            return false;
        }
        skip_behind(markers.close, at + markers.open.size());
        return true;
    }

    // Skips the thought that the prompt has opened, if the reply goes on with one.
    void skip_opened(std::string_view thoughts) {
        const size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
        size_t end = kNone;
        std::string_view close;
        for (const Markers &markers : kThoughts) {
            if (text.substr(begin).starts_with(markers.open)) {
                return;
            }
            if (const size_t one = text.find(markers.close); one < end) {
                end = one;
                close = markers.close;
            }
        }
        if (end == kNone || end < begin) {
            return;
        }
        const std::string_view thought = text.substr(begin, end - begin);
        const size_t size = thought.find_last_not_of(" \t\r\n") + 1;
        if (size > 0 && thoughts.starts_with(thought.substr(0, size))) {
            at = end + close.size();
        }
    }

    bool skip_form() {
        if (text[at] != '<' && text[at] != '[') { // with which all of them begin
            return false;
        }
        for (const Markers &markers : kThoughts) {
            if (skip_marked(markers)) {
                return true;
            }
            if (here(markers.close) && !is_content(markers.close)) { // of an empty thought
                at += markers.close.size();
                return true;
            }
        }
        return std::any_of(std::begin(kCalls), std::end(kCalls),
                           [&](const Markers &markers) { return skip_marked(markers); });
    }

    // A byte of both, or one that the content lacks: blanks beside markers.
    void step() {
        constexpr std::string_view kReplaced = "\xef\xbf\xbd"; // of bytes that are no UTF-8
        if (text[at] == content[found]) {
            seen[at++] = true;
            ++found;
        } else if (content.substr(found).starts_with(kReplaced) && (text[at] & 0x80) != 0) {
            found += kReplaced.size();
            do {
                seen[at++] = true;
            } while (at < text.size() && (text[at] & 0xc0) == 0x80 &&
                     (found == content.size() || text[at] != content[found]));
        } else {
            ++at;
        }
    }

    // Up to `end` of the text, of a message of gpt-oss, which has no other markers.
    void match(size_t end) {
        while (at < end && found < content.size()) {
            step();
        }
    }
    void match_messages() {
        while (at < text.size() && found < content.size()) {
            const size_t begin = text.find(kText, at);
            if (begin == kNone) {
                return;
            }
            const std::string_view header = text.substr(at, begin - at);
            at = begin + kText.size();
            size_t end = text.size(), next = end;
            for (const std::string_view marker : kTextEnds) {
                if (const size_t one = text.find(marker, at); one < end) {
                    end = one;
                    next = one + (marker == kStart ? 0 : marker.size());
                }
            }
            if (header.find("to=functions.") == kNone &&
                header.find("<|channel|>analysis") == kNone) {
                match(end);
            }
            at = next;
        }
    }
    void match_all() {
        while (at < text.size() && found < content.size()) {
            if (!skip_form()) {
                step();
            }
        }
    }
};

} // namespace

std::vector<size_t> visible_tokens(const std::vector<Likelihood> &tokens, const Reply &reply) {
    std::string text;
    for (const Likelihood &token : tokens) {
        text += token.text;
    }
    Walk walk{text, reply.content, 0, 0, std::vector<bool>(text.size(), false)};
    if (text.find(kHeader) != kNone && text.find(kText) != kNone &&
        reply.content.find(kHeader) == kNone) {
        walk.match_messages();
    } else {
        if (!reply.thoughts.empty()) {
            walk.skip_opened(reply.thoughts);
        }
        walk.match_all();
    }
    std::vector<size_t> visible;
    auto begin = walk.seen.begin();
    for (size_t i = 0; i < tokens.size(); ++i) {
        const auto end = begin + static_cast<ptrdiff_t>(tokens[i].text.size());
        if (std::find(begin, end, true) != end) {
            visible.push_back(i);
        }
        begin = end;
    }
    return visible;
}

} // namespace serve::api
