// Where messages lie in a rendering: the beginnings of a conversation, rendered together with it,
// are those that are rendered alone, whatever a template does with its messages; and the layout is
// that of beginnings rendered alone.
#include "runtime/session/chat_layout.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "format/state/error.h"
#include "tests/data_files.h"
#include "tests/runtime/models.h"
#include "tests/share.h"

using namespace stasis;
using namespace stasis::test;
using Ordered = nlohmann::ordered_json; // templates see the order of members

namespace {

struct LaidOut {
    std::string name, source;
    bool loops = true; // its messages are read one after the other
};

std::vector<LaidOut> published_layouts() {
    std::vector<LaidOut> all;
    // These look for the last message of a kind before they begin.
    const std::vector<std::string> ahead = {"Mistral-Small-3.2-24B-Instruct-2506",
                                            "Qwen-Qwen3-0.6B",
                                            "Qwen3.5-4B",
                                            "google-gemma-4-31B-it",
                                            "mistralai-Mistral-Nemo-Instruct-2407",
                                            "qwen3"};
    const auto add = [&](const std::string &name, const std::string &source) {
        all.push_back({name, source, std::find(ahead.begin(), ahead.end(), name) == ahead.end()});
    };
    for (const auto &file : std::filesystem::directory_iterator(test_data("chat") + "/templates")) {
        std::ifstream text(file.path());
        add(file.path().stem().string(), {std::istreambuf_iterator<char>(text), {}});
    }
    std::sort(all.begin(), all.end(),
              [](const LaidOut &a, const LaidOut &b) { return a.name < b.name; });
    if (const std::string more = shared_data("templates/cases.json"); !more.empty()) {
        const Ordered cases = Ordered::parse(std::ifstream(more));
        for (const auto &[name, source] : cases.at("templates").items()) {
            add(name, source);
        }
    }
    return all;
}

// What templates may do with their messages, and what must not be taken for the same.
const LaidOut kMadeLayouts[] = {
    {"first", "{{ messages[0].content }}{% for m in messages %}{{ m.content }}{% endfor %}"},
    {"rest", "{% if messages[0].role == 'system' %}{% set s = messages[0].content %}"
             "{% set messages = messages[1:] %}{% endif %}"
             "{% for m in messages %}{{ loop.index ~ m.content ~ s }}{% else %}none{% endfor %}$"},
    {"rests", "{% set l = messages[2:] %}{% for m in l[1:] %}{{ m.content }}{% else %}{{ l[0].role "
              "if l }}{% endfor %}."},
    {"neighbours", "{% for m in messages %}{{ loop.previtem.role if loop.previtem is defined }}"
                   "{{ m.content }}{{ loop.nextitem.role if not loop.last }}{% endfor %}"},
    {"next but one", "{% for m in messages %}{{ m.content }}"
                     "{{ messages[loop.index0 + 2].role if loop.index0 % 3 == 0 and "
                     "messages[loop.index0 + 2] is defined }}{% endfor %}"},
    {"sums", "{% set ns = namespace(n=0, all='') %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
             "{% set ns.all = ns.all + m.role %}{{ ns.n }}{{ m.content }}{% endfor %}{{ ns.all }}"},
    {"aliases", "{% set a = namespace(n=0) %}{% set b = a %}{% for m in messages %}"
                "{% set b.n = b.n + 1 %}{{ a.n }}{% endfor %}{{ a.n + b.n }}"},
    {"one after another", "{% for m in messages %}{{ m.role }}{% endfor %}{% for m in messages %}"
                          "{{ m.content }}{% endfor %}"},
    {"left early", "{% for m in messages %}{{ m.content }}{% if m.role == 'tool' %}{% break %}"
                   "{% endif %}{% endfor %}{% for m in messages %}{{ m.role }}{% endfor %}"},
    {"skips", "{% for m in messages %}{% if m.role == 'user' %}{% continue %}{% endif %}"
              "{{ m.content }}{% endfor %}"},
    {"refuses", "{% for m in messages %}{% if m.role == 'tool' and loop.last %}"
                "{{ raise_exception('no') }}{% endif %}{{ m.content }}{% endfor %}"},
    {"refuses later", "{% for m in messages %}{{ m.content }}{% endfor %}{% if not "
                      "add_generation_prompt and m is not defined %}x{% endif %}"},
    {"long enough", "{% if messages | length > 2 and messages|count != 1 %}long{% endif %}"
                    "{% for m in messages %}{{ m.content }}{% endfor %}"},
    {"within", "{% if messages %}{% if true %}{% for m in messages %}{{ m.content }}{% endfor %}in"
               "{% endif %}out{% endif %}end"},
    {"length", "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}", false},
    {"last", "{{ messages[-1].role }}{% for m in messages %}{{ m.content }}{% endfor %}", false},
    {"last, later", "{% for m in messages %}{{ m.content }}{% endfor %}{{ messages[-1].role }}"},
    {"loop's length", "{% for m in messages %}{{ loop.length }}{% endfor %}", false},
    {"loop's item", "{% for m in messages %}{{ loop['revindex'] }}{% endfor %}", false},
    {"loop kept", "{% for m in messages %}{% set l = loop %}{{ l.length }}{% endfor %}", false},
    {"filtered", "{% for m in messages if m.role == 'user' %}{{ loop.last }}{% endfor %}", false},
    {"ahead", "{% for m in messages %}{% for n in messages[loop.index:] %}{{ n.role }}{% endfor %}"
              "{% endfor %}"},
    {"ahead at times",
     "{% for m in messages %}{% if m.role == 'tool' %}"
     "{{ messages[loop.index:] | length }}{% endif %}{{ m.content }}{% endfor %}"},
    {"ahead, counting", "{% set ns = namespace(n=0) %}{% for m in messages %}"
                        "{% set ns.n = ns.n + 1 %}{{ ns.n }}{% if m.role == 'assistant' %}"
                        "{{ messages[loop.index:] | length }}{% endif %}{% endfor %}"},
    {"by a macro",
     "{% macro all(l) %}{% for m in l %}{{ m.content }}{% endfor %}{% endmacro %}"
     "{{ all(messages) }}",
     false},
    {"captured",
     "{% set text %}{% for m in messages %}{{ m.content }}{% endfor %}{% endset %}"
     "{{ text }}",
     false},
    {"as text", "{{ messages }}", false},
    {"as JSON", "{% for m in messages %}{{ m.role }}{% endfor %}{{ messages | tojson }}"},
    {"in a list", "{% set l = [messages] %}{% for m in messages %}{{ l[0] | length }}{% endfor %}",
     false},
    {"in a namespace", "{% set ns = namespace(l=messages) %}{% for m in messages %}"
                       "{{ ns.l[loop.index0].content }}{% endfor %}{{ ns.l == messages }}"},
    {"reversed", "{% for m in messages[::-1] %}{{ m.content }}{% endfor %}", false},
    {"up to", "{% for m in messages %}{{ messages[:loop.index] | length }}{% endfor %}"},
    {"none of them", "{{ 'nothing' }}"},
};

constexpr size_t kMessagesMost = 12;

Ordered any_call(std::mt19937 &random) {
    Ordered made;
    made["type"] = "function";
    made["id"] = "abcdefgh" + std::to_string(random() % 10);
    made["function"] = {{"name", random() % 2 != 0 ? "f" : "weather"},
                        {"arguments", {{"x", random() % 3}, {"city", "Zürich"}}}};
    return made;
}

// Roles that mostly follow one another as templates want them; texts that are often the same, so
// that renderings agree further than their messages do, and markers of special tokens.
Ordered any_conversation(std::mt19937 &random) {
    const std::vector<std::string> texts = {"",
                                            "a",
                                            "ab",
                                            "a\n",
                                            " a ",
                                            "b",
                                            "<think>\nt\n</think>\n\na",
                                            "ü",
                                            "<|im_end|>",
                                            "</s>a",
                                            "a<|im_start|>user\nb"};
    const auto any = [&](size_t of) { return static_cast<size_t>(random() % of); };
    Ordered messages = Ordered::array();
    if (any(2) != 0) {
        messages.push_back({{"role", "system"}, {"content", texts[any(texts.size())]}});
    }
    const bool orderly = any(3) != 0, tools = any(2) != 0;
    const size_t count = 1 + any(kMessagesMost);
    while (messages.size() < count) {
        const std::string last = messages.empty() ? "system" : messages.back()["role"];
        const bool called = !messages.empty() && messages.back().contains("tool_calls");
        std::string role = last == "user" ? "assistant" : called ? "tool" : "user";
        role = last == "tool" ? (any(2) != 0 ? "tool" : "assistant") : role;
        if (!orderly && any(4) == 0) {
            role = std::vector<std::string>{"system", "user", "assistant", "tool"}[any(4)];
        }
        Ordered message = {{"role", role}, {"content", texts[any(texts.size())]}};
        if (role == "assistant" && tools && any(2) != 0) {
            message["content"] = any(2) != 0 ? "" : "a";
            message["tool_calls"] = Ordered::array({any_call(random)});
        }
        if (role == "assistant" && any(3) == 0) {
            message["reasoning_content"] = texts[any(5)];
        }
        if (role == "tool") {
            message["tool_call_id"] = "abcdefgh1";
        }
        messages.push_back(message);
    }
    Ordered made;
    made["messages"] = messages;
    made["date"] = "2026-01-02";
    if (tools) {
        made["tools"] = Ordered::array(
            {{{"type", "function"},
              {"function",
               {{"name", "f"}, {"description", "d"}, {"parameters", {{"type", "object"}}}}}}});
    }
    return made;
}

std::string rendered_alone(const ChatTemplate &chat, const ChatInput &input, size_t count) {
    try {
        return chat.render(input, count, false);
    } catch (const Error &) {
        return "refused";
    }
}

// The layout that `lay_out` is to find, by its definition.
std::vector<size_t> ends_of(const ChatTemplate &chat, const ChatInput &input, std::string_view all,
                            bool reply, size_t known) {
    const std::string text = without_guards(all);
    std::vector<size_t> ends(input.messages.size(), 0);
    size_t limit = text.size();
    for (size_t i = ends.size(); i-- > 0 && limit > known;) {
        size_t end = limit;
        if (i + 1 < ends.size() || reply) {
            try {
                const std::string part = without_guards(chat.render(input, i + 1, false));
                end = static_cast<size_t>(
                    std::mismatch(part.begin(), part.end(), text.begin(), text.end()).first -
                    part.begin());
            } catch (const Error &) {
                end = known;
            }
        }
        limit = ends[i] = std::min(end, limit);
    }
    return ends;
}

struct ToldBeginnings {
    size_t told = 0, due = 0; // beginnings that were reported, and all there are
};

// Compares what is reported of beginnings with what is rendered alone.
void compare_beginnings(const ChatTemplate &chat, const ChatInput &input, ToldBeginnings &told) {
    size_t last = 0;
    try {
        chat.render_beginnings(input, [&](const jinja::Beginning &beginning) {
            CAPTURE(beginning.count);
            CHECK(beginning.count > last);
            last = beginning.count;
            REQUIRE(beginning.count <= input.messages.size());
            const std::string text =
                beginning.refused ? "refused" : std::string(beginning.shared) + beginning.rest;
            CHECK(text == rendered_alone(chat, input, beginning.count));
            ++told.told;
        });
    } catch (const Error &) {
        CHECK(rendered_alone(chat, input, input.messages.size()) == "refused");
        return;
    }
    told.due += input.messages.size();
}

void compare_layouts(const ChatTemplate &chat, const ChatInput &input, std::mt19937 &random) {
    for (const bool reply : {false, true}) {
        std::string text;
        try {
            text = chat.render(input, input.messages.size(), reply);
        } catch (const Error &) { // the template refuses it
            continue;
        }
        const size_t size = without_guards(text).size();
        for (const size_t known : {size_t{0}, size_t{random()} % (size + 1)}) {
            const Layout layout = lay_out(chat, input, text, reply, known, {});
            CHECK(layout.text == without_guards(text));
            CHECK(layout.ends == ends_of(chat, input, text, reply, known));
        }
    }
}

ToldBeginnings compare(const LaidOut &named, size_t conversations) {
    CAPTURE(named.name);
    ToldBeginnings told;
    std::mt19937 random(static_cast<uint32_t>(test_seed()));
    const ChatTemplate chat =
        *ChatTemplate::recognise_text(named.source, "<s>", "</s>", std::nullopt);
    const auto model = open_model(directory("recall-llama"), {});
    for (size_t i = 0; i < conversations; ++i) {
        const std::string json = any_conversation(random).dump();
        CAPTURE(json);
        const ChatInput input = guarded(read_chat(json), *model->tokenizer);
        compare_beginnings(chat, input, told);
        compare_layouts(chat, input, random);
    }
    return told;
}

} // namespace

TEST_CASE("lay_out: beginnings rendered together are those rendered alone, published templates") {
    for (const LaidOut &named : published_layouts()) {
        CAPTURE(named.name);
        const ToldBeginnings told = compare(named, whole_sweeps() ? 2000 : kSanitized ? 6 : 24);
        // Of those that read on, nearly all are told; a look ahead keeps the rest from it.
        CHECK((told.told * 10 > told.due * 8) == named.loops);
    }
}

TEST_CASE("lay_out: beginnings rendered together are those rendered alone, made templates") {
    for (const LaidOut &named : kMadeLayouts) {
        CAPTURE(named.name);
        const ToldBeginnings told = compare(named, whole_sweeps() ? 2000 : kSanitized ? 6 : 24);
        CHECK((told.told > told.due / 4) == named.loops);
    }
}

TEST_CASE("lay_out: a long conversation is rendered about twice") {
    // What is rendered is counted, not time.
    Ordered made;
    made["messages"] = Ordered::array();
    made["tools"] = Ordered::array();
    for (size_t i = 0; i < 2000; ++i) {
        made["messages"].push_back({{"role", i % 2 == 0 ? "user" : "assistant"},
                                    {"content", "text " + std::to_string(i)}});
    }
    const ChatInput input = read_chat(made.dump());
    for (const LaidOut &named : published_layouts()) {
        // Two loops over the messages: all beginnings part in the first.
        const bool twice = named.name == "LFM2.5-Instruct" ||
                           named.name == "mistralai-Ministral-3-14B-Reasoning-2512";
        if (!named.loops || twice) {
            continue;
        }
        CAPTURE(named.name);
        const ChatTemplate chat =
            *ChatTemplate::recognise_text(named.source, "<s>", "</s>", std::time_t{0});
        size_t told = 0, bytes = 0;
        chat.render_beginnings(input, [&](const jinja::Beginning &beginning) {
            ++told;
            bytes += beginning.rest.size();
        });
        CHECK(told == input.messages.size());
        CHECK(bytes < 4 * chat.render(input, input.messages.size(), false).size() + 2000 * 2000);
    }
}
