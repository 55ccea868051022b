// Features of a generation package (tests/INSIGHTS.md), in generation: batches, streaming,
// sampling and stops, each through the C interface.
#include <algorithm>
#include <cmath>
#include <set>

#include "tests/abi/fixture.h"

using namespace abi_test;

namespace {

constexpr uint32_t kVocabulary = 192; // at least

stasis_model *talker() {
    return shared_model("recall-gemma3");
}

const char *const kQuestions[] = {"Let's start by defining a variable k equal to 5. What is k?",
                                  "My name is Ada. What is my name?", "What is m?",
                                  "Tell me about the sea."};

Session asked(const char *question) {
    Session session = create(talker());
    stasis_error error;
    const stasis_status status =
        stasis_session_append_message(session.get(), "user", question, std::strlen(question),
                                      STASIS_MESSAGE_REPLY, nullptr, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    return session;
}

std::string text_from(const stasis_session *session, uint64_t begin) {
    size_t length = 0;
    const uint64_t end = position(session);
    stasis_session_text(session, begin, end, nullptr, 0, &length, nullptr);
    std::string text(length, '\0');
    REQUIRE(stasis_session_text(session, begin, end, text.data(), length, &length, nullptr) ==
            STASIS_OK);
    return text;
}

// The outcome of generate, and the text as it was streamed.
struct Generation {
    std::string text;
    Tokens tokens;
    size_t events = 0, stop_after = SIZE_MAX;
    stasis_generate_result result = sized<stasis_generate_result>();
    stasis_status status = STASIS_OK;
};

Generation generate(stasis_session *session, stasis_generate_options options,
                    size_t stop_after = SIZE_MAX) {
    Generation generation;
    generation.stop_after = stop_after;
    options.callback_user = &generation;
    options.callback = [](void *user, const stasis_generated *event) -> int32_t {
        auto &into = *static_cast<Generation *>(user);
        into.text.append(event->text, event->length);
        if (event->last == 0) {
            into.tokens.push_back(event->token);
        }
        return ++into.events < into.stop_after ? 0 : 1;
    };
    generation.status = stasis_session_generate(session, &options, &generation.result, nullptr);
    return generation;
}

// The tokens that many seeds draw.
std::set<stasis_token> drawn(stasis_session *session, stasis_sampling sampling) {
    std::set<stasis_token> tokens;
    for (sampling.seed = 0; sampling.seed < 400; ++sampling.seed) {
        REQUIRE(stasis_session_set_sampling(session, &sampling, nullptr) == STASIS_OK);
        stasis_token token = 0;
        REQUIRE(stasis_session_sample(session, &token, nullptr) == STASIS_OK);
        tokens.insert(token);
    }
    return tokens;
}

Tokens best(const stasis_session *session, size_t n, std::vector<float> *logarithms = nullptr) {
    Tokens tokens(n);
    std::vector<float> ignored(n);
    float *to = (logarithms != nullptr ? *logarithms = ignored : ignored).data();
    REQUIRE(stasis_session_top(session, n, tokens.data(), to, nullptr) == STASIS_OK);
    return tokens;
}

} // namespace

TEST_CASE("stasis_session_generate: a batch generates and streams what each session does alone") {
    std::vector<Session> sessions;
    std::vector<Generation> alone;
    std::vector<stasis_step_item> items;
    auto options = sized<stasis_generate_options>();
    options.tokens_max = 20;
    for (const char *question : kQuestions) {
        sessions.push_back(asked(question));
        alone.push_back(generate(fork(sessions.back().get()).get(), options));
        auto item = sized<stasis_step_item>();
        item.session = sessions.back().get();
        item.flags = STASIS_STEP_SAMPLE;
        items.push_back(item);
    }
    auto model = sized<stasis_model_info>();
    REQUIRE(stasis_model_get_info(talker(), &model, nullptr) == STASIS_OK);
    struct Stream {
        uint64_t begin;
        Tokens tokens;
        std::string text; // as it grows from step to step
    };
    std::vector<Stream> streams;
    for (const Session &session : sessions) {
        streams.push_back({position(session.get()), {}, {}});
    }
    for (int step = 0; step < 20; ++step) { // one true pass for all that still talk
        REQUIRE(stasis_sessions_step(items.data(), sizeof items[0], items.size(), nullptr, 0,
                                     nullptr, nullptr) == STASIS_OK);
        for (size_t i = 0; i < items.size(); ++i) {
            if (items[i].flags == 0) {
                continue;
            }
            REQUIRE(items[i].status == STASIS_OK);
            streams[i].tokens.push_back(items[i].token);
            const std::string text = text_from(sessions[i].get(), streams[i].begin);
            CHECK(text.substr(0, streams[i].text.size()) == streams[i].text);
            streams[i].text = text;
            if (std::find(model.end_tokens, model.end_tokens + model.end_token_count,
                          items[i].token) != model.end_tokens + model.end_token_count) {
                items[i].flags = 0; // this one has ended, the others continue
            }
        }
    }
    for (size_t i = 0; i < items.size(); ++i) {
        CHECK(streams[i].tokens == alone[i].tokens);
        CHECK(streams[i].text == alone[i].text);
    }
    CHECK(streams[0].text == "k is 5.");
}

TEST_CASE("stasis_session_set_sampling: temperature, from greedy to wide") {
    const Session session = session_of(llama(), some_tokens(40));
    auto sampling = sized<stasis_sampling>();
    const stasis_token first = best(session.get(), 1)[0];
    CHECK(drawn(session.get(), sampling) == std::set{first}); // 0: greedy
    sampling.temperature = 1e-3F;
    const size_t cold = drawn(session.get(), sampling).size();
    sampling.temperature = 1.0F;
    const size_t usual = drawn(session.get(), sampling).size();
    sampling.temperature = 50.0F;
    const size_t hot = drawn(session.get(), sampling).size();
    CHECK(cold <= 2);
    CHECK(usual > cold);
    CHECK(hot > usual);
}

TEST_CASE("stasis_session_set_sampling: top_k and top_p keep what they say, and all of it") {
    const Session session = session_of(llama(), some_tokens(40));
    auto sampling = sized<stasis_sampling>();
    sampling.temperature = 1.0F;
    sampling.top_k = 4;
    const Tokens four = best(session.get(), 4);
    CHECK(drawn(session.get(), sampling) == std::set(four.begin(), four.end()));
    sampling.top_k = 0;
    sampling.top_p = 0.7F;
    std::vector<float> logarithms;
    const Tokens all = best(session.get(), kVocabulary, &logarithms);
    std::set<stasis_token> nucleus;
    double sum = 0;
    for (size_t i = 0; i < all.size() && sum < 0.7; ++i) {
        nucleus.insert(all[i]);
        sum += std::exp(double{logarithms[i]});
    }
    CHECK(nucleus.size() > 1);
    const std::set<stasis_token> tokens = drawn(session.get(), sampling);
    CHECK(std::includes(nucleus.begin(), nucleus.end(), tokens.begin(), tokens.end()));
    CHECK(tokens.size() > nucleus.size() / 2);
}

TEST_CASE("stasis_session_set_sampling: the repetition penalty counts what was said") {
    const Tokens said = some_tokens(40);
    const Session session = session_of(llama(), said);
    const std::vector<float> logits = logits_of(session.get());
    for (const float penalty : {1.1F, 2.0F, 100.0F}) {
        size_t expected = 0;
        float largest = -INFINITY;
        for (size_t token = 0; token < logits.size(); ++token) {
            float logit = logits[token];
            if (std::find(said.begin(), said.end(), token) != said.end()) {
                logit = logit > 0 ? logit / penalty : logit * penalty;
            }
            if (logit > largest) {
                largest = logit;
                expected = token;
            }
        }
        auto sampling = sized<stasis_sampling>();
        sampling.repetition_penalty = penalty;
        REQUIRE(stasis_session_set_sampling(session.get(), &sampling, nullptr) == STASIS_OK);
        stasis_token token = 0;
        REQUIRE(stasis_session_sample(session.get(), &token, nullptr) == STASIS_OK);
        CHECK(token == expected);
    }
}

TEST_CASE("stasis_session_generate: generation ends at its maximum, a stop token, a stop string") {
    const Session start = asked(kQuestions[0]);
    auto options = sized<stasis_generate_options>();
    const Generation whole = generate(fork(start.get()).get(), options);
    CHECK(whole.text == "k is 5.");
    CHECK(whole.result.stop_reason == STASIS_STOP_END_TOKEN);
    for (uint64_t most = 1; most < whole.tokens.size(); ++most) {
        options.tokens_max = most;
        const Session session = fork(start.get());
        const Generation cut = generate(session.get(), options);
        CHECK(cut.result.stop_reason == STASIS_STOP_LENGTH);
        CHECK(cut.result.count == most);
        CHECK(position(session.get()) == cut.result.begin + most);
        CHECK(whole.text.substr(0, cut.text.size()) == cut.text);
    }
    options = sized<stasis_generate_options>();
    options.stop_tokens = &whole.tokens[1];
    options.stop_token_count = 1;
    const Generation token = generate(fork(start.get()).get(), options);
    CHECK(token.result.stop_reason == STASIS_STOP_END_TOKEN);
    CHECK(token.tokens == Tokens(whole.tokens.begin(), whole.tokens.begin() + 2));
    options = sized<stasis_generate_options>();
    const char *stops[] = {"nowhere", "s 5"};
    options.stop_strings = stops;
    options.stop_string_count = 2;
    const Generation string = generate(fork(start.get()).get(), options);
    CHECK(string.result.stop_reason == STASIS_STOP_STRING);
    CHECK(string.text == "k i");
}

TEST_CASE(
    "stasis_session_generate: tokens stream through a callback, which can stop at any of them") {
    const Session start = asked(kQuestions[0]);
    const auto options = sized<stasis_generate_options>();
    const Generation whole = generate(fork(start.get()).get(), options);
    CHECK(whole.events >= whole.tokens.size());
    for (size_t after = 1; after < whole.tokens.size(); ++after) {
        const Session session = fork(start.get());
        const Generation part = generate(session.get(), options, after);
        CHECK(part.status == STASIS_STOPPED);
        CHECK(part.result.stop_reason == STASIS_STOP_CALLBACK);
        CHECK(part.result.count == after); // delivered tokens stay
        CHECK(part.tokens == Tokens(whole.tokens.begin(),
                                    whole.tokens.begin() + static_cast<std::ptrdiff_t>(after)));
        const Generation rest =
            generate(session.get(), options); // and it continues from that position
        CHECK(part.tokens.size() + rest.tokens.size() == whole.tokens.size());
    }
}
