// Text through the ABI: tokens, templates, turns, streaming.
#include <algorithm>

#include "tests/abi/conversation.h"

using namespace abi_test;

namespace {

const std::string kQuestion = "Let's start by defining a variable k equal to 5. What is k?";

stasis_model *chat_model() {
    return shared_model("recall-gemma3");
}

Tokens tokenize(const std::string &text, uint32_t flags = 0) {
    size_t count = 0;
    stasis_error error;
    stasis_model_tokenize(chat_model(), text.data(), text.size(), flags, nullptr, 0, &count,
                          nullptr);
    Tokens tokens(count);
    const stasis_status status =
        stasis_model_tokenize(chat_model(), text.data(), text.size(), flags, tokens.data(),
                              tokens.size(), &count, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    return tokens;
}

std::string detokenize(const Tokens &tokens, uint32_t flags = 0) {
    std::string text(1000, '\0');
    size_t length = 0;
    stasis_error error;
    const stasis_status status =
        stasis_model_detokenize(chat_model(), tokens.data(), tokens.size(), flags, text.data(),
                                text.size(), &length, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    return text.substr(0, length);
}

std::string text_of(const stasis_session *session, uint64_t begin, uint64_t end) {
    std::string text(4000, '\0');
    size_t length = 0;
    REQUIRE(stasis_session_text(session, begin, end, text.data(), text.size(), &length, nullptr) ==
            STASIS_OK);
    return text.substr(0, length);
}

stasis_message message(const char *role, const std::string &text) {
    auto result = sized<stasis_message>();
    result.role = role;
    result.text = text.data();
    result.length = text.size();
    return result;
}

// A reply as it streams.
struct Reply {
    std::string text;
    std::vector<stasis_token> tokens;
    bool last = false;

    static int32_t add(void *user, const stasis_generated *event) {
        Reply &reply = *static_cast<Reply *>(user);
        reply.text.append(event->text, event->length);
        if (event->last == 0) {
            reply.tokens.push_back(event->token);
        }
        reply.last = event->last != 0;
        return 0;
    }
};

} // namespace

TEST_CASE("stasis_model_tokenize: text to tokens and back") {
    const std::string text = "k is 5, \xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80 and <end_of_turn>";
    const Tokens tokens = tokenize(text);
    CHECK(detokenize(tokens) == text);
    CHECK(tokenize("").empty());
    auto info = sized<stasis_model_info>();
    REQUIRE(stasis_model_get_info(chat_model(), &info, nullptr) == STASIS_OK);
    REQUIRE(info.bos >= 0);
    const Tokens with_bos = tokenize(text, STASIS_TOKENIZE_BOS);
    CHECK(with_bos.front() == info.bos);
    CHECK(Tokens(with_bos.begin() + 1, with_bos.end()) == tokens);
    const Tokens special = tokenize(text, STASIS_TOKENIZE_SPECIAL);
    CHECK(special.size() < tokens.size());
    CHECK(special.back() == info.end_tokens[info.end_token_count - 1]);
    CHECK(detokenize(special, STASIS_DETOKENIZE_SPECIAL) == text);
    CHECK(detokenize(special) == text.substr(0, text.size() - 13));
    std::string pieces;
    for (const stasis_token token : special) {
        pieces += detokenize({token}, STASIS_DETOKENIZE_PIECE);
    }
    CHECK(pieces.find("<end_of_turn>") != std::string::npos);

    stasis_error error;
    size_t count = 0;
    CHECK(stasis_model_tokenize(chat_model(), "ab\xFFz", 4, 0, nullptr, 0, &count, &error) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(contains(error, "2"));
    const Tokens bad = {5, 5000};
    CHECK(stasis_model_detokenize(chat_model(), bad.data(), 2, 0, nullptr, 0, &count, &error) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(stasis_model_detokenize(chat_model(), bad.data(), 2, STASIS_DETOKENIZE_PIECE, nullptr, 0,
                                  &count, &error) == STASIS_INVALID_ARGUMENT);
    CHECK(stasis_model_tokenize(chat_model(), "a", 1, 8, nullptr, 0, &count, &error) ==
          STASIS_UNSUPPORTED);
    CHECK(stasis_model_tokenize(chat_model(), nullptr, 1, 0, nullptr, 0, &count, &error) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(stasis_model_tokenize(chat_model(), "a", 1, 0, nullptr, 0, nullptr, &error) ==
          STASIS_INVALID_ARGUMENT);
}

TEST_CASE("stasis_model_render: a conversation renders as turns append, whatever the stride of the "
          "messages") {
    const std::string reply = "k is 5.";
    struct Wide {
        stasis_message message;
        uint64_t hosts_own;
    } wide[] = {{message("user", kQuestion), ~uint64_t{0}}, {message("assistant", reply), 7}};
    std::string text(1000, '\0');
    size_t length = 0;
    stasis_error error;
    REQUIRE(stasis_model_render(chat_model(), &wide[0].message, sizeof wide[0], 2, 0, text.data(),
                                text.size(), &length, &error) == STASIS_OK);
    text.resize(length);
    CHECK(text.find(kQuestion) != std::string::npos);
    CHECK(text.find(reply) != std::string::npos);

    stasis_session *created = nullptr;
    REQUIRE(stasis_session_create(chat_model(), nullptr, &created, nullptr) == STASIS_OK);
    const Session session(created);
    for (const Wide &turn : wide) {
        REQUIRE(stasis_session_append_message(created, turn.message.role, turn.message.text,
                                              turn.message.length, 0, nullptr,
                                              nullptr) == STASIS_OK);
    }
    Tokens tokens(position(created));
    size_t count = 0;
    REQUIRE(stasis_session_tokens(created, 0, tokens.data(), nullptr, tokens.size(), &count,
                                  nullptr) == STASIS_OK);
    CHECK(tokens == tokenize(text, STASIS_TOKENIZE_SPECIAL));

    const Digest before = digest(created);
    CHECK(stasis_session_append_message(created, "nobody", "a", 1, 0, nullptr, &error) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(digest(created) == before);
    wide[1].message.struct_size = sizeof wide[1]; // claims the host's own field, which is not 0
    CHECK(stasis_model_render(chat_model(), &wide[0].message, sizeof wide[0], 2, 0, nullptr, 0,
                              &length, &error) == STASIS_UNSUPPORTED);
    wide[1].message.struct_size = sizeof wide[1].message;
    CHECK(stasis_model_render(chat_model(), &wide[0].message, 8, 2, 0, nullptr, 0, &length,
                              &error) == STASIS_INVALID_ARGUMENT);
    CHECK(contains(error, "stride"));
    wide[1].message.role = nullptr;
    CHECK(stasis_model_render(chat_model(), &wide[0].message, sizeof wide[0], 2, 0, nullptr, 0,
                              &length, &error) == STASIS_INVALID_ARGUMENT);
}

TEST_CASE("stasis_session_generate: a reply streams as text, ends at its end token, and tells "
          "template from text") {
    stasis_session *created = nullptr;
    REQUIRE(stasis_session_create(chat_model(), nullptr, &created, nullptr) == STASIS_OK);
    const Session session(created);
    say(created, kQuestion);
    Reply reply;
    auto options = sized<stasis_generate_options>();
    auto result = sized<stasis_generate_result>();
    options.tokens_max = 60;
    options.callback = Reply::add;
    options.callback_user = &reply;
    REQUIRE(stasis_session_generate(created, &options, &result, nullptr) == STASIS_OK);
    CHECK(reply.text == "k is 5.");
    CHECK(result.stop_reason == STASIS_STOP_END_TOKEN);
    CHECK(result.count == reply.tokens.size());
    CHECK(text_of(created, result.begin, result.begin + result.count) == "k is 5.");

    std::vector<uint8_t> sources(result.begin);
    size_t count = 0;
    REQUIRE(stasis_session_tokens(created, 0, nullptr, nullptr, 0, &count, nullptr) ==
            STASIS_BUFFER_TOO_SMALL);
    sources.resize(count);
    REQUIRE(stasis_session_tokens(created, 0, nullptr, sources.data(), count, &count, nullptr) ==
            STASIS_OK);
    CHECK(sources.front() == STASIS_SOURCE_TEMPLATE); // bos
    CHECK(std::count(sources.begin(), sources.end(), STASIS_SOURCE_TEXT) ==
          static_cast<std::ptrdiff_t>(tokenize(kQuestion).size()));
    CHECK(sources.back() == STASIS_SOURCE_SAMPLED);

    SUBCASE("a stop string ends it, and is not shown") {
        REQUIRE(stasis_session_rewind(created, result.begin, 0, nullptr, nullptr) == STASIS_OK);
        const char *stops[] = {"never", " 5"};
        options.stop_strings = stops;
        options.stop_string_count = 2;
        Reply again;
        options.callback_user = &again;
        REQUIRE(stasis_session_generate(created, &options, &result, nullptr) == STASIS_OK);
        CHECK(result.stop_reason == STASIS_STOP_STRING);
        CHECK(again.text == "k is");
    }
    SUBCASE("what may become a stop string is held back, and comes with the last event") {
        CHECK(!reply.last);
        REQUIRE(stasis_session_rewind(created, result.begin, 0, nullptr, nullptr) == STASIS_OK);
        const char *stop = " 5.!";
        options.stop_strings = &stop;
        options.stop_string_count = 1;
        Reply again;
        options.callback_user = &again;
        REQUIRE(stasis_session_generate(created, &options, &result, nullptr) == STASIS_OK);
        CHECK(result.stop_reason == STASIS_STOP_END_TOKEN);
        CHECK(again.text == "k is 5.");
        CHECK(again.tokens == reply.tokens);
        CHECK(again.last);
    }
    SUBCASE("a frozen conversation goes on with the same words") {
        const Folder folder;
        REQUIRE(save(created, folder.file("a")) == STASIS_OK);
        const Session resumed = load(chat_model(), folder.file("a"));
        for (stasis_session *each : {created, resumed.get()}) {
            say(each, "Now set a new variable m equal to k multiplied by 11. What is m?");
            Reply next;
            options.callback_user = &next;
            REQUIRE(stasis_session_generate(each, &options, &result, nullptr) == STASIS_OK);
            CHECK(next.text == "m is 55.");
        }
        CHECK(digest(created) == digest(resumed.get()));
        REQUIRE(save(created, folder.file("a")) == STASIS_OK);
        auto report = sized<stasis_verify_report>();
        stasis_error error;
        CHECK_MESSAGE(stasis_snapshot_verify(open_snapshot(folder.file("a")).get(), chat_model(),
                                             nullptr, &report, &error) == STASIS_OK,
                      error.message);
    }
}
