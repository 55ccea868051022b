// Conversations in JSON through the ABI: rendering, appends, differences, replies, dates.
#include <string>

#include "tests/abi/fixture.h"

using namespace abi_test;

namespace {

stasis_model *chat_talker() {
    return shared_model("recall-llama");
}

std::string rendered_chat(const std::string &conversation, uint32_t flags) {
    std::string text(1000, '\0');
    size_t length = 0;
    stasis_error error;
    const stasis_status status =
        stasis_model_render_chat(chat_talker(), conversation.data(), conversation.size(), flags,
                                 text.data(), text.size(), &length, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    return text.substr(0, length);
}

stasis_status append_conversation(const Session &session, const std::string &conversation,
                                  uint64_t *position, stasis_error *error) {
    return stasis_session_append_chat(session.get(), conversation.data(), conversation.size(),
                                      STASIS_CHAT_REPLY, position, nullptr, error);
}

std::string conversation_of(const char *messages) {
    return std::string("{\"messages\": [") + messages + "]}";
}

constexpr const char *kAsking = R"({"role": "user", "content": "What is k?"})";

} // namespace

TEST_CASE("stasis_model_render_chat: the model's own template, and what is refused") {
    CHECK(rendered_chat(conversation_of(kAsking), 0) ==
          "<s><|im_start|>user\nWhat is k?<|im_end|>\n");
    CHECK(rendered_chat(conversation_of(kAsking), STASIS_CHAT_REPLY) ==
          "<s><|im_start|>user\nWhat is k?<|im_end|>\n<|im_start|>assistant\n");
    size_t length = 0;
    stasis_error error;
    CHECK(stasis_model_render_chat(chat_talker(), "[", 1, 0, nullptr, 0, &length, &error) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(stasis_model_render_chat(nullptr, "[", 1, 0, nullptr, 0, &length, &error) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(stasis_model_render_chat(chat_talker(), nullptr, 1, 0, nullptr, 0, &length, &error) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(stasis_model_render_chat(chat_talker(), "[", 1, 2, nullptr, 0, &length, &error) ==
          STASIS_UNSUPPORTED);
    CHECK(stasis_model_render_chat(llama(), "{}", 2, 0, nullptr, 0, &length, &error) ==
          STASIS_UNSUPPORTED);
}

TEST_CASE("stasis_session_append_chat: a difference is told, and rewound to") {
    const Session session = create(chat_talker());
    stasis_error error;
    uint64_t position = 99;
    REQUIRE(append_conversation(session, conversation_of(kAsking), &position, &error) == STASIS_OK);
    auto info = sized<stasis_session_info>();
    REQUIRE(stasis_session_get_info(session.get(), &info, nullptr) == STASIS_OK);
    CHECK(position == info.position);

    const std::string other = conversation_of(R"({"role": "user", "content": "What is m?"})");
    CHECK(append_conversation(session, other, &position, &error) == STASIS_CONFLICT);
    CHECK(contains(error, "from position " + std::to_string(position)));
    REQUIRE(position > 2);
    REQUIRE(position < info.position);
    REQUIRE(stasis_session_rewind(session.get(), position, 0, nullptr, &error) == STASIS_OK);
    REQUIRE(append_conversation(session, other, nullptr, &error) == STASIS_OK);
    CHECK(append_conversation(session, "nothing", &position, &error) == STASIS_INVALID_ARGUMENT);

    // The same as one that never had the other text.
    const Session fresh = create(chat_talker());
    REQUIRE(append_conversation(fresh, other, nullptr, &error) == STASIS_OK);
    stasis_digest a, b;
    REQUIRE(stasis_session_digest(session.get(), &a, nullptr) == STASIS_OK);
    REQUIRE(stasis_session_digest(fresh.get(), &b, nullptr) == STASIS_OK);
    CHECK(std::memcmp(&a, &b, sizeof a) == 0);
}

TEST_CASE("stasis_session_chat_tokens: what append_chat appends, and appends nothing") {
    const auto tokens_of = [](const Session &session, const std::string &conversation,
                              uint64_t &position) {
        std::vector<stasis_token> tokens(1000);
        size_t count = 0;
        stasis_error error;
        const stasis_status status = stasis_session_chat_tokens(
            session.get(), conversation.data(), conversation.size(), STASIS_CHAT_REPLY, &position,
            tokens.data(), tokens.size(), &count, &error);
        REQUIRE_MESSAGE(status == STASIS_OK, error.message);
        tokens.resize(count);
        return tokens;
    };
    const auto log_of = [](const Session &session) {
        std::vector<stasis_token> tokens(1000);
        size_t count = 0;
        REQUIRE(stasis_session_tokens(session.get(), 0, tokens.data(), nullptr, tokens.size(),
                                      &count, nullptr) == STASIS_OK);
        tokens.resize(count);
        return tokens;
    };
    const std::string asked = conversation_of(kAsking);
    const std::string other = conversation_of(R"({"role": "user", "content": "What is m?"})");
    const Session session = create(chat_talker());
    uint64_t position = 99;
    const std::vector<stasis_token> whole = tokens_of(session, asked, position);
    CHECK(position == 0);
    CHECK(log_of(session).empty());
    REQUIRE(append_conversation(session, asked, nullptr, nullptr) == STASIS_OK);
    CHECK(log_of(session) == whole);
    CHECK(tokens_of(session, asked, position).empty());
    CHECK(position == whole.size());

    // Another conversation: what both begin with stays.
    const std::vector<stasis_token> rest = tokens_of(session, other, position);
    REQUIRE(position > 2);
    REQUIRE(position < whole.size());
    const Session fresh = create(chat_talker());
    REQUIRE(append_conversation(fresh, other, nullptr, nullptr) == STASIS_OK);
    std::vector<stasis_token> joined(whole.begin(), whole.begin() + static_cast<long>(position));
    joined.insert(joined.end(), rest.begin(), rest.end());
    CHECK(log_of(fresh) == joined);

    stasis_error error;
    size_t count = 0;
    CHECK(stasis_session_chat_tokens(session.get(), other.data(), other.size(), STASIS_CHAT_REPLY,
                                     nullptr, nullptr, 0, &count,
                                     &error) == STASIS_BUFFER_TOO_SMALL);
    CHECK(count == rest.size());
    CHECK(stasis_session_chat_tokens(session.get(), "[", 1, 0, &position, nullptr, 0, &count,
                                     &error) == STASIS_INVALID_ARGUMENT);
    CHECK(stasis_session_chat_tokens(session.get(), "[", 1, 2, &position, nullptr, 0, &count,
                                     &error) == STASIS_UNSUPPORTED);
}

TEST_CASE("stasis_prompt.conversation: as append_chat and generate") {
    const std::string asked = conversation_of(kAsking);
    const auto digest_of = [](const Session &session) {
        stasis_digest digest;
        REQUIRE(stasis_session_digest(session.get(), &digest, nullptr) == STASIS_OK);
        return std::string(reinterpret_cast<const char *>(digest.bytes), sizeof digest.bytes);
    };
    const auto reply_of = [&](const Session &session) {
        char text[400];
        size_t length = 0;
        REQUIRE(stasis_session_reply(session.get(), asked.data(), asked.size(),
                                     STASIS_REPLY_COMPLETE, text, sizeof text, &length,
                                     nullptr) == STASIS_OK);
        return std::string(text, length);
    };
    const Session alone = create(chat_talker());
    auto options = sized<stasis_generate_options>();
    options.tokens_max = 12;
    REQUIRE(append_conversation(alone, asked, nullptr, nullptr) == STASIS_OK);
    REQUIRE(stasis_session_generate(alone.get(), &options, nullptr, nullptr) == STASIS_OK);

    stasis_scheduler *scheduler = nullptr;
    REQUIRE(stasis_scheduler_create(chat_talker(), nullptr, &scheduler, nullptr) == STASIS_OK);
    const Session scheduled = create(chat_talker());
    auto prompt = sized<stasis_prompt>();
    const auto submit = [&](const std::string &conversation, stasis_error *error) {
        prompt.conversation = conversation.data();
        prompt.conversation_length = conversation.size();
        return stasis_scheduler_submit(scheduler, scheduled.get(), &options, &prompt, error);
    };
    const auto run = [&] {
        for (bool ended = false; !ended;) {
            stasis_scheduler_event *event = nullptr;
            REQUIRE(stasis_scheduler_next(scheduler, nullptr, STASIS_FOREVER, &event, nullptr) ==
                    STASIS_OK);
            ended = event->end != 0;
            stasis_scheduler_event_free(event);
        }
    };
    stasis_error error;
    REQUIRE(submit(asked, &error) == STASIS_OK);
    run();
    CHECK(digest_of(scheduled) == digest_of(alone));
    CHECK(reply_of(scheduled) == reply_of(alone));

    // Another conversation is told, and nothing has happened; after a rewind it is taken.
    const std::string other = conversation_of(R"({"role": "user", "content": "What is m?"})");
    CHECK(submit(other, &error) == STASIS_CONFLICT);
    CHECK(digest_of(scheduled) == digest_of(alone));
    uint64_t position = 0;
    size_t count = 0;
    CHECK(stasis_session_chat_tokens(scheduled.get(), other.data(), other.size(), STASIS_CHAT_REPLY,
                                     &position, nullptr, 0, &count,
                                     nullptr) == STASIS_BUFFER_TOO_SMALL);
    REQUIRE(stasis_session_rewind(scheduled.get(), position, 0, nullptr, &error) == STASIS_OK);
    REQUIRE(submit(other, &error) == STASIS_OK);
    run();
    const Session fresh = create(chat_talker());
    REQUIRE(append_conversation(fresh, other, nullptr, nullptr) == STASIS_OK);
    REQUIRE(stasis_session_generate(fresh.get(), &options, nullptr, nullptr) == STASIS_OK);
    CHECK(digest_of(scheduled) == digest_of(fresh));
    stasis_scheduler_close(scheduler);
}

TEST_CASE("stasis_prompt.conversation: laying it out can be cancelled, and nothing has happened") {
    stasis_scheduler *scheduler = nullptr;
    REQUIRE(stasis_scheduler_create(chat_talker(), nullptr, &scheduler, nullptr) == STASIS_OK);
    const Session session = create(chat_talker());
    const std::string asked = conversation_of(kAsking);
    auto prompt = sized<stasis_prompt>();
    prompt.conversation = asked.data();
    prompt.conversation_length = asked.size();
    auto options = sized<stasis_generate_options>();
    const Cancel cancel = make_cancel();
    stasis_cancel_request(cancel.get());
    options.cancel = cancel.get();
    CHECK(stasis_scheduler_submit(scheduler, session.get(), &options, &prompt, nullptr) ==
          STASIS_CANCELLED);
    auto info = sized<stasis_session_info>();
    REQUIRE(stasis_session_get_info(session.get(), &info, nullptr) == STASIS_OK);
    CHECK(info.position == 0);
    auto stats = sized<stasis_scheduler_stats>();
    REQUIRE(stasis_scheduler_get_stats(scheduler, &stats, nullptr) == STASIS_OK);
    CHECK(stats.sessions == 0);
    stasis_scheduler_close(scheduler);
}

TEST_CASE("stasis_session_reply: the reply as a message") {
    const Session session = create(chat_talker());
    char text[200];
    size_t length = 0;
    stasis_error error;
    CHECK(stasis_session_reply(session.get(), nullptr, 0, 0, text, sizeof text, &length, &error) ==
          STASIS_NOT_FOUND);
    const char *question = R"({"role": "user", "content": "Let's start by defining )"
                           R"(a variable k equal to 5. What is k?"})";
    REQUIRE(append_conversation(session, conversation_of(question), nullptr, &error) == STASIS_OK);
    auto options = sized<stasis_generate_options>();
    options.tokens_max = 40;
    REQUIRE(stasis_session_generate(session.get(), &options, nullptr, &error) == STASIS_OK);
    CHECK(stasis_session_reply(session.get(), nullptr, 0, 0, text, 5, &length, &error) ==
          STASIS_BUFFER_TOO_SMALL);
    const std::string tools = conversation_of(kAsking);
    REQUIRE(stasis_session_reply(session.get(), tools.data(), tools.size(), STASIS_REPLY_COMPLETE,
                                 text, sizeof text, &length, &error) == STASIS_OK);
    CHECK(std::string(text, length) == R"({"role": "assistant", "content": "k is 5."})");
}

TEST_CASE("stasis_model_options.date: what is no date is refused by name") {
    auto options = sized<stasis_model_options>();
    options.date = "yesterday";
    stasis_model *model = nullptr;
    stasis_error error;
    CHECK(stasis_model_open(test_data("recall-llama").c_str(), &options, &model, &error) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(contains(error, "options.date is 'yesterday'"));
}
