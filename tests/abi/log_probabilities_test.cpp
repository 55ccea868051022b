// Log-probabilities that generate reports of each token: those that the session returns before the
// draw.
#include <cmath>
#include <string_view>

#include "tests/abi/fixture.h"

using namespace abi_test;

namespace {

struct GeneratedToken {
    stasis_token token;
    uint32_t last, count;
    float own;
    Tokens best;
    std::vector<float> values;
    bool null;
};

int32_t keep(void *user, const stasis_generated *event) {
    GeneratedToken kept{event->token,
                        event->last,
                        event->log_probability_count,
                        event->log_probability,
                        {},
                        {},
                        event->best_tokens == nullptr && event->best_log_probabilities == nullptr};
    for (uint32_t i = 0; i < kept.count; ++i) {
        kept.best.push_back(event->best_tokens[i]);
        kept.values.push_back(event->best_log_probabilities[i]);
    }
    static_cast<std::vector<GeneratedToken> *>(user)->push_back(kept);
    return 0;
}

stasis_generate_options generating(std::vector<GeneratedToken> &events, uint32_t count,
                                   uint64_t tokens) {
    auto options = sized<stasis_generate_options>();
    options.flags = STASIS_GENERATE_IGNORE_END;
    options.tokens_max = tokens;
    options.callback = keep;
    options.callback_user = &events;
    options.log_probability_count = count;
    return options;
}

} // namespace

TEST_CASE("stasis_session_generate: log-probabilities of generate are those of top before the "
          "draw, bit for bit") {
    auto sampling = sized<stasis_sampling>(); // what they do not depend on
    sampling.temperature = 3.0F;
    sampling.top_k = 50;
    sampling.repetition_penalty = 1.5F;
    sampling.seed = 3;
    for (const char *name : {"recall-gemma3", "zoo/llama-gqa-untied"}) {
        const Session session = session_of(shared_model(name), some_tokens(30));
        REQUIRE(stasis_session_set_sampling(session.get(), &sampling, nullptr) == STASIS_OK);
        auto info = sized<stasis_model_info>();
        REQUIRE(stasis_model_get_info(shared_model(name), &info, nullptr) == STASIS_OK);
        for (const uint32_t count : {1U, 7U, info.vocabulary}) {
            const Session again = fork(session.get());
            std::vector<GeneratedToken> events;
            const auto options = generating(events, count, 12);
            REQUIRE(stasis_session_generate(session.get(), &options, nullptr, nullptr) ==
                    STASIS_OK);
            std::erase_if(events, [](const GeneratedToken &event) { return event.last != 0; });
            REQUIRE(events.size() == 12);
            for (const GeneratedToken &event : events) {
                Tokens best(count);
                std::vector<float> values(count);
                REQUIRE(stasis_session_top(again.get(), count, best.data(), values.data(),
                                           nullptr) == STASIS_OK);
                double score = 0;
                REQUIRE(stasis_session_score(again.get(), &event.token, 1, &score, nullptr,
                                             nullptr) == STASIS_OK);
                CHECK(event.best == best);
                CHECK(same_bits(event.values, values));
                CHECK(event.own == static_cast<float>(score));
                stasis_token drawn = 0;
                REQUIRE(stasis_session_decode(again.get(), &drawn, nullptr) == STASIS_OK);
                CHECK(drawn == event.token);
            }
            CHECK(digest(again.get()) == digest(session.get()));
        }
    }
}

TEST_CASE("stasis_session_generate: log-probabilities add up to one, and greedy takes the first") {
    const Session session = session_of(gemma(), some_tokens(30));
    std::vector<GeneratedToken> events;
    const auto options = generating(events, 192, 1);
    REQUIRE(stasis_session_generate(session.get(), &options, nullptr, nullptr) == STASIS_OK);
    double sum = 0;
    for (const float value : events.at(0).values) {
        sum += std::exp(double{value});
    }
    CHECK(std::abs(sum - 1) < 1e-5);
    CHECK(events[0].token == events[0].best[0]);
    CHECK(events[0].own == events[0].values[0]);
}

TEST_CASE("stasis_session_generate: log-probabilities: none unless asked for, none with held-back "
          "text, not too many") {
    std::vector<GeneratedToken> events;
    const Session session = session_of(shared_model("recall-gemma3"), some_tokens(30));
    auto options = generating(events, 0, 20);
    REQUIRE(stasis_session_generate(session.get(), &options, nullptr, nullptr) == STASIS_OK);
    for (const GeneratedToken &event : events) {
        CHECK(event.null);
        CHECK(event.count == 0);
        CHECK(event.own == 0.0F);
    }
    // A stop string that begins with every byte there is holds text back until the end.
    std::string text(4096, '\0');
    size_t length = 0;
    REQUIRE(stasis_session_text(session.get(), 30, position(session.get()), text.data(),
                                text.size(), &length, nullptr) == STASIS_OK);
    REQUIRE(length > 3);
    const std::string stop = text.substr(0, length) + "and more";
    const char *const stops[] = {stop.c_str()};
    REQUIRE(stasis_session_rewind(session.get(), 30, 0, nullptr, nullptr) == STASIS_OK);
    events.clear();
    options = generating(events, 3, 20);
    options.stop_strings = stops;
    options.stop_string_count = 1;
    REQUIRE(stasis_session_generate(session.get(), &options, nullptr, nullptr) == STASIS_OK);
    REQUIRE(events.size() == 21);
    CHECK(events.back().last == 1);
    CHECK(events.back().null);
    CHECK(events.back().own == 0.0F);
    CHECK(events[19].count == 3);

    stasis_error error;
    auto info = sized<stasis_model_info>();
    REQUIRE(stasis_model_get_info(gemma(), &info, nullptr) == STASIS_OK);
    const Session other = session_of(gemma(), some_tokens(30));
    events.clear();
    options = generating(events, info.vocabulary + 1, 5);
    CHECK(stasis_session_generate(other.get(), &options, nullptr, &error) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(contains(error, "the vocabulary has"));
    CHECK(events.empty());
    CHECK(position(other.get()) == 30);
    options = generating(events, 3, 2);
    options.reserved = 1;
    CHECK(stasis_session_generate(other.get(), &options, nullptr, nullptr) == STASIS_UNSUPPORTED);
    options.struct_size = offsetof(stasis_generate_options, log_probability_count);
    REQUIRE(stasis_session_generate(other.get(), &options, nullptr, nullptr) == STASIS_OK);
    CHECK(events.at(0).count == 0); // of a caller that knows nothing of them
}
