// Chat templates: published templates render exactly, turn by turn as well as whole; what cannot be
// described is refused by name.
#include "runtime/text/chat.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "format/state/error.h"
#include "tests/data_files.h"
#include "tests/places.h"
#include "tests/runtime/failure.h"

namespace fs = std::filesystem;
using namespace stasis;
using namespace stasis::test;
using JsonValue = nlohmann::json;
using Messages = std::vector<Message>;

namespace {

// 2026-01-02 12:00 UTC.
constexpr std::time_t kChatTime = 1767355200;

JsonValue published_cases() {
    const std::string path = shared_data("templates/cases.json");
    return path.empty() ? JsonValue() : JsonValue::parse(std::ifstream(path));
}

Messages messages_of(const JsonValue &list) {
    Messages out;
    for (const JsonValue &message : list) {
        out.push_back({message.at("role"), message.at("content")});
    }
    return out;
}

ChatTemplate published(const JsonValue &cases, const std::string &name) {
    const JsonValue &special = cases.at("special").at(name);
    return *ChatTemplate::recognise_text(cases.at("templates").at(name).get<std::string>(),
                                         special.at("bos_token").get<std::string>(),
                                         special.at("eos_token").get<std::string>(), kChatTime);
}

// A session's calls between two turns of given text.
void advance(ChatPosition &position, const std::string &role, const RenderedTurn &turn) {
    position.started = position.started || !turn.segments.empty();
    position.user_seen = position.user_seen || role == "user";
    position.last = role == "system" ? Role::system : role == "user" ? Role::user : Role::assistant;
    position.pending_system = turn.pending_system;
}

std::string text_of(const RenderedTurn &turn) {
    std::string out;
    for (const Segment &segment : turn.segments) {
        out += segment.text;
    }
    return out;
}

// The conversation turn by turn, with a generation prompt after the last.
std::string by_turns(const ChatTemplate &chat, const Messages &messages) {
    std::string out;
    ChatPosition position;
    for (size_t i = 0; i < messages.size(); ++i) {
        const RenderedTurn turn =
            chat.turn(position, messages[i].role, messages[i].text, i + 1 == messages.size());
        out += text_of(turn);
        advance(position, messages[i].role, turn);
    }
    return out;
}

std::string contents_of(const RenderedTurn &turn) {
    std::string out;
    for (const Segment &segment : turn.segments) {
        out += segment.source == TokenSource::text ? "[" + segment.text + "]" : "";
        CHECK(segment.special == (segment.source == TokenSource::templated));
    }
    return out;
}

ChatTemplate recognised(std::string_view jinja) {
    return *ChatTemplate::recognise_text(jinja, "<s>", "</s>", kChatTime);
}

} // namespace

TEST_CASE("ChatTemplate: published templates render exactly as published, whole and turn by turn") {
    const JsonValue cases = published_cases();
    if (cases.is_null()) {
        STASIS_SKIP("templates/cases.json is not beside the clone");
    }
    size_t rendered = 0, refused = 0;
    for (const JsonValue &item : cases.at("cases")) {
        const std::string name = item.at("template");
        const ChatTemplate chat = published(cases, name);
        const Messages messages = messages_of(item.at("messages"));
        CAPTURE(name);
        CAPTURE(item.at("conversation").get<std::string>());
        REQUIRE(chat.problem() == "");
        if (item.contains("text")) {
            CHECK(chat.render(messages, true) == item.at("text").get<std::string>());
            CHECK(by_turns(chat, messages) == item.at("text").get<std::string>());
            ++rendered;
        } else {
            CHECK(status_of([&] { chat.render(messages, true); }) == Status::invalid_argument);
            CHECK(message_of([&] { by_turns(chat, messages); }).find("'system'") !=
                  std::string::npos);
            ++refused;
        }
    }
    CHECK(rendered + refused == 52);
    CHECK(refused == 4);
}

TEST_CASE("ChatTemplate: published templates are recognised by what they render") {
    const JsonValue cases = published_cases();
    if (cases.is_null()) {
        STASIS_SKIP("templates/cases.json is not beside the clone");
    }
    const std::pair<const char *, const char *> kFamilies[] = {
        {"chatml", "chatml"},   {"mistral-v0.2", "mistral"}, {"llama2", "llama2"},
        {"llama3", "llama3"},   {"phi3-mini", "phi3"},       {"gemma2", "gemma"},
        {"llama3.1", "llama3"}, {"llama3.2", "llama3"},      {"qwen2.5", "chatml"},
        {"qwen3", "chatml"},    {"phi3.5", "phi3"},          {"gemma3", "gemma"},
        {"zephyr", "zephyr"}};
    for (const auto &[name, family] : kFamilies) {
        const std::string checked = name; // (clang 14 captures no structured binding)
        CAPTURE(checked);
        CHECK(published(cases, name).name() == family);
    }
    // The built-in format of a family is that of its published template.
    for (const char *family : {"chatml", "llama3", "zephyr"}) {
        const JsonValue &special = cases.at("special").at(family);
        const auto builtin = ChatTemplate::named(family, special.at("bos_token").get<std::string>(),
                                                 special.at("eos_token").get<std::string>());
        const Messages messages = {{"system", " S "},
                                   {"user", " A "},
                                   {"assistant", " B "},
                                   {"system", "T"},
                                   {"user", "C"}};
        CHECK(builtin.render(messages, true) == published(cases, family).render(messages, true));
    }
}

TEST_CASE("ChatTemplate: built-in formats") {
    const Messages messages = {
        {"system", "Be brief."}, {"user", " Hi "}, {"assistant", " Yo "}, {"user", "Bye"}};
    const std::pair<const char *, const char *> kExpected[] = {
        {"gemma", "<s><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nYo"
                  "<end_of_turn>\n<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n"},
        {"chatml", "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n"
                   "<|im_start|>assistant\n Yo <|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
                   "<|im_start|>assistant\n"},
        {"zephyr", "<|system|>\nBe brief.</s>\n<|user|>\n Hi </s>\n<|assistant|>\n Yo </s>\n"
                   "<|user|>\nBye</s>\n<|assistant|>\n"},
        {"llama2", "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n Hi [/INST] Yo </s>"
                   "[INST] Bye [/INST]"},
        {"llama3", "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
                   "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
                   "<|start_header_id|>assistant<|end_header_id|>\n\nYo<|eot_id|>"
                   "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
                   "<|start_header_id|>assistant<|end_header_id|>\n\n"},
        {"phi3", "<|system|>\nBe brief.<|end|>\n<|user|>\n Hi <|end|>\n<|assistant|>\n Yo <|end|>\n"
                 "<|user|>\nBye<|end|>\n<|assistant|>\n"}};
    for (const auto &[name, expected] : kExpected) {
        const ChatTemplate chat = ChatTemplate::named(name, "<s>", "</s>");
        CHECK(chat.name() == name);
        CHECK(chat.render(messages, true) == expected);
        CHECK(by_turns(chat, messages) == expected);
    }
    const ChatTemplate mistral = ChatTemplate::named("mistral", "<s>", "</s>");
    const Messages dialogue(messages.begin() + 1, messages.end());
    CHECK(mistral.render(dialogue, true) == "<s>[INST]  Hi  [/INST] Yo </s>[INST] Bye [/INST]");
    CHECK(status_of([&] { mistral.render(messages, true); }) == Status::invalid_argument);
    CHECK(message_of([] { ChatTemplate::named("alpaca", "", ""); }) ==
          "unknown chat template 'alpaca'; known are 'gemma', 'chatml', 'zephyr', 'llama2', "
          "'llama3', 'mistral', 'phi3'");
}

TEST_CASE("ChatTemplate: orders that a template refuses are refused naming both roles") {
    const ChatTemplate gemma = ChatTemplate::named("gemma", "<bos>", "<eos>");
    ChatPosition position;
    CHECK(message_of([&] { gemma.turn(position, "assistant", "x", false); }) ==
          "chat template 'gemma' does not let a conversation start with the role 'assistant'");
    position = {true, Role::user, true, false, "", ""};
    CHECK(message_of([&] { gemma.turn(position, "user", "x", false); }) ==
          "chat template 'gemma' does not let the role 'user' follow the role 'user'");
    position = {true, Role::assistant, true, true, "", ""};
    CHECK(message_of([&] { gemma.turn(position, "system", "x", false); }) ==
          "chat template 'gemma' does not let the role 'system' follow the role 'assistant'");
    CHECK(status_of([&] { gemma.turn(position, "assistant", "x", false); }) ==
          Status::invalid_argument);
    CHECK(message_of([&] { gemma.turn(position, "tool", "x", false); }) ==
          "unknown role 'tool': a turn is by 'system', 'user' or 'assistant'");
    CHECK(status_of([&] { gemma.render({}, true); }) == Status::invalid_argument);
}

TEST_CASE("ChatTemplate: a system text without a turn of its own waits for the first user turn") {
    const ChatTemplate gemma = ChatTemplate::named("gemma", "<bos>", "<eos>");
    ChatPosition position;
    RenderedTurn turn = gemma.turn(position, "system", " Be brief. ", false);
    CHECK(turn.segments.empty());
    CHECK(turn.pending_system == " Be brief. ");
    CHECK(status_of([&] { gemma.turn(position, "system", "x", true); }) ==
          Status::invalid_argument);
    CHECK(status_of([&] { gemma.turn(position, "system", "", false); }) ==
          Status::invalid_argument);
    position.pending_system = turn.pending_system; // all that a session keeps of it
    CHECK(status_of([&] { gemma.turn(position, "assistant", "x", false); }) ==
          Status::invalid_argument);
    CHECK(status_of([&] { gemma.turn(position, "system", "x", false); }) ==
          Status::invalid_argument);
    turn = gemma.turn(position, "user", " Hi ", true);
    CHECK(text_of(turn) == "<bos><start_of_turn>user\n Be brief. \n\nHi<end_of_turn>\n"
                           "<start_of_turn>model\n");
    CHECK(contents_of(turn) == "[ Be brief. ][Hi]");
    CHECK(turn.pending_system == "");
    CHECK(turn.segments.front().start);
    CHECK(turn.segments.back().part == TurnPart::reply);
    CHECK(turn.segments.back().text == "<start_of_turn>model\n");
    // Tokens that the caller appended in between do not lose it; bos is then the caller's.
    position.started = true;
    CHECK(text_of(gemma.turn(position, "user", "Hi", false)) ==
          "<start_of_turn>user\n Be brief. \n\nHi<end_of_turn>\n");
}

TEST_CASE("ChatTemplate: behind tokens that the caller appended, no bos is rendered") {
    ChatPosition position;
    position.started = true;
    const ChatTemplate llama3 = ChatTemplate::named("llama3", "<s>", "</s>");
    CHECK(text_of(llama3.turn(position, "system", "S", false)) ==
          "<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>");
    CHECK(text_of(llama3.turn(position, "user", "A", false)) ==
          "<|start_header_id|>user<|end_header_id|>\n\nA<|eot_id|>");
    CHECK_FALSE(llama3.turn(position, "user", "A", false).segments.front().start);
}

TEST_CASE("ChatTemplate: an open reply is closed with what it lacks") {
    const auto next = [](const char *name, const char *tail) {
        const ChatTemplate chat = ChatTemplate::named(name, "<bos>", "</s>");
        const ChatPosition position = {true, Role::assistant, true, true, tail, ""};
        const RenderedTurn turn = chat.turn(position, "user", "x", false);
        CHECK_FALSE(turn.segments.front().start);
        return text_of({{turn.segments.front()}, ""}) +
               (turn.segments.front().part == TurnPart::closing ? "|closing" : "");
    };
    CHECK(next("gemma", "<end_of_turn>") == "\n|closing");
    CHECK(next("gemma", "") == "<end_of_turn>\n|closing");
    CHECK(next("gemma", "<eos>") == "<end_of_turn>\n|closing"); // ended with another end token
    CHECK(next("chatml", "<|im_end|>") == "\n|closing");
    CHECK(next("zephyr", "</s>") == "\n|closing");
    CHECK(next("llama3", "<|eot_id|>") == "<|start_header_id|>user<|end_header_id|>\n\n");
    CHECK(next("llama2", "</s>") == "[INST] ");
    CHECK(next("llama2", "") == " </s>|closing");
    CHECK(next("mistral", "") == "</s>|closing");
}

TEST_CASE("ChatTemplate: contents are text, all else is the template's") {
    const ChatTemplate llama2 = ChatTemplate::named("llama2", "<s>", "</s>");
    const RenderedTurn turn = llama2.turn({}, "user", "  [INST] </s> \n", true);
    CHECK(contents_of(turn) == "[[INST] </s>]");
    CHECK(turn.segments.front().text == "<s>[INST] ");
    CHECK(turn.segments.back().text == " [/INST]");
    // A user text of nothing but whitespace after a system text: both are trimmed as one.
    const Messages blank = {{"system", "S"}, {"user", " \n "}};
    CHECK(llama2.render(blank, true) == "<s>[INST] <<SYS>>\nS\n<</SYS>> [/INST]");
    // Python's whitespace, not only ASCII's.
    const Messages wide = {{"user", "\u3000\u00a0x\u2003\x1f"}};
    CHECK(llama2.render(wide, true) == "<s>[INST] x [/INST]");
}

TEST_CASE("ChatTemplate: what a template does beyond the common") {
    const JsonValue cases = published_cases();
    if (cases.is_null()) {
        STASIS_SKIP("templates/cases.json is not beside the clone");
    }
    const Messages exchange = {{"user", "A"}, {"assistant", "B"}};
    SUBCASE("the end of a rendering without generation prompt") {
        CHECK(published(cases, "phi3.5").render(exchange, false) ==
              "<|user|>\nA<|end|>\n<|assistant|>\nB<|end|>\n<|endoftext|>");
        CHECK(published(cases, "chatml").render(exchange, false) ==
              "<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\nB<|im_end|>\n");
        CHECK(published(cases, "llama3").render({exchange.data(), 1}, false) ==
              "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nA<|eot_id|>"
              "<|start_header_id|>assistant<|end_header_id|>\n\n");
    }
    SUBCASE("an assistant's text at the end") {
        CHECK(published(cases, "qwen3").render(exchange, false) ==
              "<|im_start|>user\nA<|im_end|>\n"
              "<|im_start|>assistant\n<think>\n\n</think>\n\nB<|im_end|>\n");
    }
    SUBCASE("an empty system text that counts as none") {
        const Messages empty = {{"system", ""}, {"user", "A"}};
        CHECK(published(cases, "phi3.5").render(empty, true) ==
              "<|user|>\nA<|end|>\n<|assistant|>\n");
        CHECK(published(cases, "gemma3").render(empty, true) ==
              "<bos><start_of_turn>user\n\n\nA<end_of_turn>\n<start_of_turn>model\n");
        const Messages twice = {{"system", ""}, {"system", "S"}, {"user", "A"}};
        CHECK(published(cases, "llama3.1").render(twice, true).find("December 2023") !=
              std::string::npos);
        const Messages later = {{"user", "A"}, {"assistant", "B"}, {"system", ""}, {"user", "C"}};
        CHECK(published(cases, "phi3.5").render(later, true).find("system") == std::string::npos);
    }
    SUBCASE("system texts further on") {
        const Messages later = {{"user", "A"}, {"assistant", "B"}, {"system", "S"}, {"user", "C"}};
        CHECK(published(cases, "llama3.1")
                  .render(later, true)
                  .find("<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>") !=
              std::string::npos);
        CHECK(published(cases, "phi3-mini").render(later, true) ==
              "<s><|user|>\nA<|end|>\n<|assistant|>\nB<|end|>\n<|user|>\nC<|end|>\n"
              "<|assistant|>\n");
        CHECK(status_of([&] { published(cases, "gemma3").render(later, true); }) ==
              Status::invalid_argument);
    }
    SUBCASE("texts that a template looks for in contents are refused, not misrendered") {
        const Messages system_tags = {{"user", "say <<SYS>>"}};
        CHECK(status_of([&] { published(cases, "llama2").render(system_tags, true); }) ==
              Status::unsupported);
        const Messages thought = {{"user", "A"}, {"assistant", "<think>x</think>B"}, {"user", "C"}};
        CHECK(message_of([&] {
                  published(cases, "qwen3").render(thought, true);
              }).find("'</think>'") != std::string::npos);
        const Messages harmless = {{"user", "<think>x</think> <|im_end|> <tool_response>"}};
        CHECK(published(cases, "qwen3").render(harmless, true) ==
              "<|im_start|>user\n<think>x</think> <|im_end|> <tool_response><|im_end|>\n"
              "<|im_start|>assistant\n");
    }
}

TEST_CASE("ChatTemplate: a template of no known family works, without a name") {
    const ChatTemplate chat =
        recognised("{% for m in messages %}### {{ m.role }}: {{ m.content }}\n{% endfor %}");
    CHECK(chat.problem() == "");
    CHECK(chat.name() == "");
    CHECK(chat.render(Messages{{"user", "A"}, {"assistant", "B"}}, false) ==
          "### user: A\n### assistant: B\n");
}

TEST_CASE("ChatTemplate: templates that cannot be described say so") {
    const auto problem = [](std::string_view jinja) {
        const ChatTemplate chat = recognised(jinja);
        CHECK(chat.name() == "");
        CHECK(status_of([&] { chat.turn({}, "user", "x", true); }) == Status::unsupported);
        CHECK(status_of([&] {
                  chat.render(Messages{{"user", "x"}}, true);
              }) == Status::unsupported);
        return chat.problem();
    };
    const auto has = [&](std::string_view jinja, const char *reason) {
        const std::string text = problem(jinja);
        CHECK_MESSAGE(text.find(reason) != std::string::npos, text);
    };
    has("{% for m in messages", "line 1");
    has("{{ messages | frobnicate }}", "'frobnicate' is not supported");
    has("{{ raise_exception('closed for today') }}", "closed for today");
    has("{{ messages[0].content | upper }}", "once and whole");
    has("{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}", "once and whole");
    // The whole conversation in reverse; the number of turns in every turn.
    has("{% for m in messages[::-1] %}[INST] {{ m.content }}{% endfor %}", "once and whole");
    has("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ messages|length }}{{ m.content }}"
        "<|im_end|>\n{% endfor %}",
        "starts unlike the others");
    has("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.strip('\\n') }}<|im_end|>\n"
        "{% endfor %}",
        "whitespace");
    has("", "once and whole");
    // A history that is rewritten: only the last turns are kept.
    has("{% for m in messages[-5:] %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
        "{% endfor %}",
        "turn by turn");
}

TEST_CASE(
    "ChatTemplate: a system text that moves with the last user turn is refused, the rest works") {
    // As Mistral Instruct v0.3 does it.
    const ChatTemplate chat = recognised(
        "{% if messages[0].role == 'system' %}{% set s = messages[0].content + '\\n\\n' %}"
        "{% set turns = messages[1:] %}{% else %}{% set s = '' %}{% set turns = messages %}"
        "{% endif %}{{ bos_token }}{% for m in turns %}{% if m.role == 'user' %}[INST] "
        "{{ s if loop.last else '' }}{{ m.content }}[/INST]{% else %} {{ m.content }}"
        "{{ eos_token }}{% endif %}{% endfor %}");
    CHECK(chat.problem() == "");
    CHECK(chat.name() == "mistral");
    const Messages messages = {{"system", "S"}, {"user", "A"}, {"assistant", "B"}, {"user", "C"}};
    CHECK(chat.render({messages.data() + 1, 3}, true) == "<s>[INST] A[/INST] B</s>[INST] C[/INST]");
    CHECK(status_of([&] { chat.render(messages, true); }) == Status::unsupported);
}

TEST_CASE("ChatTemplate: orders whose rendering depends on more than the last role are refused") {
    // Turns of the same role run together, once.
    const ChatTemplate chat = recognised(
        "{% for m in messages %}{% if loop.index0 > 0 and messages[loop.index0 - 1].role == m.role "
        "%}{{ m.content }}{% else %}{{ '<|im_start|>' + m.role + '\\n' + m.content + "
        "'<|im_end|>\\n'"
        " }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
        "{% endif %}");
    CHECK(chat.problem() == "");
    CHECK(chat.name() == "chatml");
    const Messages twice = {{"user", "A"}, {"user", "B"}};
    CHECK(status_of([&] { chat.render(twice, true); }) == Status::invalid_argument);
    const Messages dialogue = {{"system", "S"}, {"user", "A"}, {"assistant", "B"}, {"user", "C"}};
    CHECK(chat.render(dialogue, true) ==
          "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nA<|im_end|>\n"
          "<|im_start|>assistant\nB<|im_end|>\n<|im_start|>user\nC<|im_end|>\n"
          "<|im_start|>assistant\n");
}

TEST_CASE("ChatTemplate: hostile templates end quickly") {
    const char *kHostile[] = {
        "{% for a in range(1000000000) %}{% endfor %}",
        "{% for a in range(9000) %}{% for b in range(9000) %}{% for c in range(9000) %}x"
        "{% endfor %}{% endfor %}{% endfor %}",
        "{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}"
        "{% endfor %}{{ n.s }}",
        "{{ 'x' * 1000000000000 }}",
        "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
        "{% set n = namespace(l=[1]) %}{% for i in range(99) %}{% set n.l = [n.l, n.l] %}"
        "{% endfor %}{{ n.l }}"};
    for (const char *jinja : kHostile) {
        const auto begin = std::chrono::steady_clock::now();
        const ChatTemplate chat = recognised(jinja);
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
        CHECK(chat.problem() != "");
        CHECK(seconds.count() < 5.0); // sanitizers included
    }
}

TEST_CASE("ChatTemplate: where a model's files keep the template") {
    const fs::path directory = fs::path(places::binary) / "chat_test_files";
    fs::remove_all(directory);
    fs::create_directories(directory);
    const auto write = [&](const char *name, const std::string &text) {
        std::ofstream(directory / name, std::ios::binary) << text;
    };
    CHECK_FALSE(ChatTemplate::recognise(directory.string(), std::nullopt));
    write("tokenizer_config.json", R"({"eos_token": "</s>"})");
    CHECK_FALSE(ChatTemplate::recognise(directory.string(), std::nullopt));
    const std::string zephyr = "{% for m in messages %}<|{{ m.role }}|>\\n{{ m.content }}"
                               "{{ eos_token }}\\n{% endfor %}"
                               "{% if add_generation_prompt %}<|assistant|>\\n{% endif %}";
    write("tokenizer_config.json",
          R"({"eos_token": {"content": "</s>"}, "chat_template": [
              {"name": "tool_use", "template": "{{ 1 }}"},
              {"name": "default", "template": ")" +
              zephyr + R"("}]})");
    CHECK(ChatTemplate::recognise(directory.string(), std::nullopt)->name() == "zephyr");
    write("chat_template.jinja", "{% for m in messages %}<|im_start|>{{ m.role }}\n"
                                 "{{ m.content }}<|im_end|>{{ '\\n' }}{% endfor %}");
    const auto both = ChatTemplate::recognise(directory.string(), std::nullopt);
    CHECK(both->problem() == "");
    CHECK(both->name() == "chatml");
    fs::remove(directory / "chat_template.jinja");
    for (const char *bad : {"[1]", "{", R"({"bos_token": 5})", R"({"chat_template": 5})",
                            R"({"added_tokens_decoder": {"x": {"content": "y"}}})",
                            R"({"added_tokens_decoder": [1]})"}) {
        write("tokenizer_config.json", bad);
        CHECK_MESSAGE(status_of([&] {
                          ChatTemplate::recognise(directory.string(), std::nullopt);
                      }) == Status::corrupt,
                      bad);
    }
    fs::remove_all(directory);
}
