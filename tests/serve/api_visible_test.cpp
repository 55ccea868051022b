// Which tokens of a reply its reader sees: those of the content, however the text is cut into
// tokens, and never those of thoughts, calls and markers.
#include <doctest/doctest.h>

#include <random>

#include "tools/serve/api/reply.h"

namespace {

using serve::api::Likelihood;
using serve::api::Reply;
using serve::api::visible_tokens;

// The text of a reply; what is between 1 and 2 is its content.
struct Case {
    const char *thoughts, *marked;
};
const Case kCases[] = {
    {"", "\1Just text.\2"},
    {"", "\1Just text.\2  \n"},
    {"", "\1  <b> and [brackets], </b>\2"},
    {"Hm t>.", "<think>\nHm t>.\n</think>\n\n\1the end\2"},
    {"Hm, hm.", "Hm, hm.</think>\1t\2"},           // the prompt has opened the thought
    {"Hm, hm.", "\nHm, hm.\n</think>\n\1think\2"}, //
    {"", "\n</think>\n\n\1think>\2"},              // and it is empty
    {"hm", "\1 So.\2<think>hm</think>\1 Yes.\2"},
    {"ab", "<think>a</think>\1x\2<think>b</think>\1y\2"},
    {"one", "<think>one</think>\1one\2"},
    {"", "\1Let me look.\2\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"},
    {"", "\1a <tool_call> that is none\2"},
    {"", "\1a <think\2"},
    {"THINK", "[THINK]THINK[/THINK]\n\1THINK\2[TOOL_CALLS]f[ARGS]{\"a\": \"THINK\"}"},
    {"channel", "<|channel>thought\nchannel<channel|>\1channel\2"},
    {"final", "<|channel|>analysis<|message|>final<|end|><|start|>assistant<|channel|>final"
              "<|message|>\1final assistant\2"},
    {"", "<|channel|>commentary<|message|>\1message\2<|end|><|start|>assistant to=functions.f"
         "<|channel|>commentary<|message|>{\"message\": 1}<|call|>"},
};

struct Told {
    Reply reply;
    std::string text;
    std::vector<bool> seen; // by byte of the text
};

Told told(const Case &one) {
    Told made;
    made.reply.thoughts = one.thoughts;
    bool seen = false;
    for (const char *at = one.marked; *at != '\0'; ++at) {
        if (*at == '\1' || *at == '\2') {
            seen = *at == '\1';
            continue;
        }
        made.text += *at;
        made.seen.push_back(seen);
        made.reply.content += seen ? std::string{*at} : "";
    }
    return made;
}

// Returns the text in tokens of one to so many bytes.
std::vector<Likelihood> cut(const std::string &text, size_t longest, std::mt19937_64 &random) {
    std::vector<Likelihood> tokens;
    for (size_t at = 0; at < text.size();) {
        const size_t size = 1 + random() % longest;
        tokens.push_back({text.substr(at, size), 0, 0, {}});
        at += size;
    }
    return tokens;
}

std::vector<size_t> expected(const Told &made, const std::vector<Likelihood> &tokens) {
    std::vector<size_t> indices;
    size_t at = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
        bool seen = false;
        for (size_t end = at + tokens[i].text.size(); at < end; ++at) {
            seen = seen || made.seen[at];
        }
        if (seen) {
            indices.push_back(i);
        }
    }
    return indices;
}

} // namespace

TEST_CASE("visible_tokens: those of the content, in every form, however it is cut") {
    std::mt19937_64 random(1);
    for (const Case &one : kCases) {
        CAPTURE(one.marked);
        const Told made = told(one);
        for (const size_t longest : {1, 2, 3, 5, 9, 100}) {
            for (int i = 0; i < 20; ++i) {
                const auto tokens = cut(made.text, longest, random);
                CHECK(visible_tokens(tokens, made.reply) == expected(made, tokens));
            }
        }
    }
}

TEST_CASE("visible_tokens: of a reply that grows they become more, and none is taken back") {
    std::mt19937_64 random(2);
    for (const Case &one : kCases) {
        CAPTURE(one.marked);
        const Told made = told(one);
        const auto tokens = cut(made.text, 4, random);
        const auto all = visible_tokens(tokens, made.reply);
        size_t before = 0;
        for (size_t size = 0; size <= made.reply.content.size(); ++size) {
            Reply part = made.reply;
            part.content.resize(size);
            const auto some = visible_tokens(tokens, part);
            CHECK(some.size() >= before);
            before = some.size();
            REQUIRE(some.size() <= all.size());
            CHECK(std::vector<size_t>(all.begin(), all.begin() + static_cast<ptrdiff_t>(before)) ==
                  some);
        }
    }
}

TEST_CASE("visible_tokens: bytes that are no UTF-8, and what a stop string has cut off") {
    Reply reply;
    reply.content = "a\xef\xbf\xbd"
                    "b";
    const std::vector<Likelihood> tokens = {
        {"a", 0, 0, {}}, {"\xc3", 0, 0, {}}, {"b", 0, 0, {}}, {"STOP", 0, 0, {}}, {"b", 0, 0, {}}};
    CHECK(visible_tokens(tokens, reply) == std::vector<size_t>{0, 1, 2});
    CHECK(visible_tokens({}, reply).empty());
    CHECK(visible_tokens(tokens, Reply{}).empty());
}
