// Conversations with tools and thoughts through the models' own templates: what transformers
// renders (tests/data/chat/make_cases.py), whole and turn by turn.
#include "runtime/text/chat_input.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "format/state/error.h"
#include "runtime/text/chat.h"
#include "tests/data_files.h"
#include "tests/places.h"
#include "tests/runtime/failure.h"

using namespace stasis;
using namespace stasis::test;
using Ordered = nlohmann::ordered_json; // templates see the order of members

namespace {

const std::string &folder() {
    static const std::string path = std::string(places::source) + "/tests/data/chat/";
    return path;
}

const Ordered &cases() {
    static const Ordered all = Ordered::parse(std::ifstream(folder() + "cases.json"));
    return all;
}

ChatTemplate own_template(const std::string &name) {
    std::ifstream file(folder() + "templates/" + name + ".jinja");
    const std::string source{std::istreambuf_iterator<char>(file), {}};
    REQUIRE(!source.empty());
    return *ChatTemplate::recognise_text(source, cases().at("bos_token").get<std::string>(),
                                         cases().at("eos_token").get<std::string>(), std::nullopt);
}

std::string rendered(const ChatTemplate &chat, const ChatInput &input, size_t count, bool reply) {
    try {
        return chat.render(input, count, reply);
    } catch (const Error &error) {
        return std::string("refused: ") + error.what();
    }
}

} // namespace

TEST_CASE("read_chat: published templates render as transformers renders them") {
    size_t compared = 0, refused = 0;
    for (const Ordered &entry : cases().at("cases")) {
        const std::string name = entry.at("template");
        CAPTURE(name);
        const ChatTemplate chat = own_template(name);
        for (const Ordered &expected : entry.at("renderings")) {
            const std::string conversation = expected.at("conversation");
            CAPTURE(conversation);
            const ChatInput input = read_chat(cases().at("conversations").at(conversation).dump());
            const std::string text = rendered(chat, input, input.messages.size(), false);
            const std::string prompt = rendered(chat, input, input.messages.size(), true);
            if (expected.contains("text")) {
                CHECK(text == expected.at("text").get<std::string>());
                ++compared;
            } else {
                CHECK_MESSAGE(text.starts_with("refused: "), text);
                ++refused;
            }
            if (expected.contains("prompt_adds")) {
                CHECK(prompt == text + expected.at("prompt_adds").get<std::string>());
            } else if (expected.contains("prompt")) {
                CHECK(prompt == expected.at("prompt").get<std::string>());
            } else {
                CHECK_MESSAGE(prompt.starts_with("refused: "), prompt);
            }
        }
    }
    CHECK(compared > 340);
    CHECK(refused > 25);
}
