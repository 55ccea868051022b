// The recall models' conversation for the ABI tests: turns, and playing them. Knows the public
// header and tests/data/<model>/conversation.json.
#pragma once

#include <map>
#include <nlohmann/json.hpp>

#include "tests/abi/fixture.h"

namespace abi_test {

struct Turn {
    std::string user, reply;
    Tokens prompt_ids, reply_ids; // what the turn appends, and what is drawn for the reply
};

inline const std::vector<Turn> &turns_of(const std::string &model) {
    static std::map<std::string, std::vector<Turn>> known;
    std::vector<Turn> &turns = known[model];
    if (turns.empty()) {
        const auto json = nlohmann::json::parse(read_file(test_data(model) + "/conversation.json"));
        for (const auto &turn : json["turns"]) {
            turns.push_back({turn["user"], turn["reply"], turn["prompt_ids"], turn["reply_ids"]});
        }
    }
    return turns;
}

inline void say(stasis_session *session, const std::string &text,
                const stasis_run_options *options = nullptr) {
    stasis_error error;
    const stasis_status status = stasis_session_append_message(
        session, "user", text.data(), text.size(), STASIS_MESSAGE_REPLY, options, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
}

// The reply's text, drawn until the model ends it.
inline std::string reply(stasis_session *session) {
    std::string text;
    auto options = sized<stasis_generate_options>();
    options.tokens_max = 60;
    options.callback_user = &text;
    options.callback = [](void *user, const stasis_generated *event) -> int32_t {
        static_cast<std::string *>(user)->append(event->text, event->length);
        return 0;
    };
    auto result = sized<stasis_generate_result>();
    stasis_error error;
    const stasis_status status = stasis_session_generate(session, &options, &result, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    return text;
}

inline std::string ask(stasis_session *session, const std::string &text) {
    say(session, text);
    return reply(session);
}

inline Tokens tokens_from(const stasis_session *session, uint64_t begin,
                          std::vector<uint8_t> *sources = nullptr) {
    Tokens tokens(position(session) - begin);
    std::vector<uint8_t> from(tokens.size());
    size_t count = 0;
    REQUIRE(stasis_session_tokens(session, begin, tokens.data(), from.data(), tokens.size(), &count,
                                  nullptr) == STASIS_OK);
    REQUIRE(count == tokens.size());
    if (sources != nullptr) {
        *sources = from;
    }
    return tokens;
}

inline Tokens tokenize(const stasis_model *model, const std::string &text) {
    Tokens tokens(text.size() + 1);
    size_t count = 0;
    REQUIRE(stasis_model_tokenize(model, text.data(), text.size(), 0, tokens.data(), tokens.size(),
                                  &count, nullptr) == STASIS_OK);
    tokens.resize(count);
    return tokens;
}

// One of the Big 8 + 4 of a session that is saved for it.
inline nlohmann::json element_of(stasis_session *session, uint32_t element) {
    const Folder folder;
    REQUIRE(save(session, folder.file("a")) == STASIS_OK);
    const Snapshot snapshot = open_snapshot(folder.file("a"));
    std::string text(1 << 20, '\0');
    size_t length = 0;
    REQUIRE(stasis_snapshot_element(snapshot.get(), element, text.data(), text.size(), &length,
                                    nullptr) == STASIS_OK);
    return nlohmann::json::parse(text.substr(0, length));
}

} // namespace abi_test
