// Promises of a session through the ABI: all or nothing, independence, the floor, settings.
#include <limits>

#include "tests/abi/fixture.h"

using namespace abi_test;

namespace {

std::vector<float> logits(const stasis_session *session) {
    std::vector<float> row(192);
    size_t count = 0;
    REQUIRE(stasis_session_logits(session, row.data(), row.size(), &count, nullptr) == STASIS_OK);
    return row;
}

} // namespace

TEST_CASE("stasis_session_append: append is all or nothing: a bad token in the middle") {
    const Session session = session_of(gemma(), some_tokens(70));
    const Digest before = digest(session.get());
    Tokens tokens = some_tokens(100, 2);
    tokens[57] = 192;
    stasis_error error;
    CHECK(stasis_session_append(session.get(), tokens.data(), tokens.size(), nullptr, &error) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(contains(error, "192"));
    CHECK(contains(error, "index 57"));
    CHECK(position(session.get()) == 70);
    CHECK(digest(session.get()) == before);
    CHECK(stasis_session_score(session.get(), tokens.data(), tokens.size(),
                               std::vector<double>(100).data(), nullptr,
                               &error) == STASIS_INVALID_ARGUMENT);
    CHECK(digest(session.get()) == before);
}

TEST_CASE("stasis_session_append: append past the capacity is FULL and changes nothing") {
    const Session session = create(gemma(), 100);
    append(session.get(), some_tokens(90));
    const Digest before = digest(session.get());
    const Tokens more = some_tokens(11, 2);
    stasis_error error;
    CHECK(stasis_session_append(session.get(), more.data(), 11, nullptr, &error) == STASIS_FULL);
    CHECK(contains(error, "capacity of 100"));
    CHECK(digest(session.get()) == before);
    CHECK(stasis_session_append(session.get(), more.data(), 10, nullptr, &error) == STASIS_OK);
    stasis_token token = 0;
    CHECK(stasis_session_decode(session.get(), &token, &error) == STASIS_FULL);
    // A count that no array can have is refused by the same rule, not computed with.
    CHECK(stasis_session_append(session.get(), more.data(), SIZE_MAX / 4, nullptr, &error) !=
          STASIS_OK);
    CHECK(position(session.get()) == 100);

    auto options = sized<stasis_session_options>();
    options.capacity = 2049;
    stasis_session *created = nullptr;
    CHECK(stasis_session_create(gemma(), &options, &created, &error) == STASIS_INVALID_ARGUMENT);
    CHECK(created == nullptr);
}

TEST_CASE("stasis_session_append: the KV budget: POOL_EXHAUSTED, nothing changed, and freeing "
          "sessions helps") {
    auto page = sized<stasis_session_info>();
    REQUIRE(stasis_session_get_info(session_of(llama(), some_tokens(64)).get(), &page, nullptr) ==
            STASIS_OK);
    auto options = sized<stasis_model_options>();
    options.kv_budget_bytes = 8 * page.kv_bytes;
    const Model model = open_path(test_data("zoo/llama-gqa-untied"), &options);
    Session first = session_of(model.get(), some_tokens(64));
    const Session second = session_of(model.get(), some_tokens(30, 2));
    const Digest before = digest(second.get());
    const Tokens more = some_tokens(1500, 3);
    stasis_error error;
    CHECK(stasis_session_append(second.get(), more.data(), more.size(), nullptr, &error) ==
          STASIS_POOL_EXHAUSTED);
    CHECK(error.message[0] != '\0');
    CHECK(digest(second.get()) == before);
    auto stats = sized<stasis_model_stats>();
    REQUIRE(stasis_model_get_stats(model.get(), &stats, nullptr) == STASIS_OK);
    CHECK(stats.kv_budget_bytes == options.kv_budget_bytes);
    CHECK(stats.kv_used_bytes > 0);
    CHECK(stats.kv_used_bytes + stats.kv_cached_bytes <= options.kv_budget_bytes);
    const uint64_t used = stats.kv_used_bytes;
    first.reset();
    REQUIRE(stasis_model_get_stats(model.get(), &stats, nullptr) == STASIS_OK);
    CHECK(stats.kv_used_bytes < used);
}

TEST_CASE("stasis_model_get_stats: sharing is visible in the stats") {
    const Model model = open_path(test_data("zoo/gemma3-text"));
    const Session parent = session_of(model.get(), some_tokens(64));
    auto alone = sized<stasis_model_stats>(), both = sized<stasis_model_stats>();
    REQUIRE(stasis_model_get_stats(model.get(), &alone, nullptr) == STASIS_OK);
    CHECK(alone.kv_shared_bytes == 0);
    const Session child = fork(parent.get());
    REQUIRE(stasis_model_get_stats(model.get(), &both, nullptr) == STASIS_OK);
    CHECK(both.kv_used_bytes == alone.kv_used_bytes);
    CHECK(both.kv_shared_bytes == alone.kv_used_bytes);
    auto info = sized<stasis_session_info>();
    REQUIRE(stasis_session_get_info(child.get(), &info, nullptr) == STASIS_OK);
    CHECK(info.pages_own == 0);
    CHECK(info.pages_shared > 0);
}

TEST_CASE("stasis_model_close: a closed model lives on in its sessions") {
    Model model = open_path(test_data("zoo/gemma3-text"));
    const Session session = create(model.get());
    auto info = sized<stasis_model_info>();
    REQUIRE(stasis_model_get_info(model.get(), &info, nullptr) == STASIS_OK);
    model.reset();
    append(session.get(), some_tokens(40));
    CHECK(digest(session.get()) == digest(session_of(gemma(), some_tokens(40)).get()));
    uint32_t windows = 0;
    for (uint32_t layer = 0; layer < info.layers; ++layer) {
        windows += info.layer_windows[layer]; // still there: sanitizers watch
    }
    CHECK(windows == 6 * 16);
    CHECK(std::string(info.weight_types) == "BF16: 50 matrices, BF16: 43 vectors");
}

TEST_CASE("stasis_session_fork: a fork leaves its parent alone, whatever it does") {
    const Session parent = session_of(gemma(), some_tokens(100));
    const Digest before = digest(parent.get());
    const Session child = fork(parent.get());
    CHECK(digest(child.get()) == before);
    append(child.get(), some_tokens(90, 2));
    CHECK(digest(parent.get()) == before);
    REQUIRE(stasis_session_rewind(child.get(), 100, STASIS_REWIND_RECOMPUTE, nullptr, nullptr) ==
            STASIS_OK);
    CHECK(digest(child.get()) == before);
    append(child.get(), some_tokens(50, 3));
    append(parent.get(), some_tokens(50, 3));
    CHECK(digest(parent.get()) == digest(child.get()));
}

TEST_CASE("stasis_session_rewind: rewind reaches its floor, and below it only by recomputing") {
    const Session session = session_of(gemma(), some_tokens(150));
    auto info = sized<stasis_session_info>();
    REQUIRE(stasis_session_get_info(session.get(), &info, nullptr) == STASIS_OK);
    CHECK(info.window == 16);
    CHECK(info.window_retain == 16);
    REQUIRE(info.rewind_floor > 0);
    const Digest before = digest(session.get());
    stasis_error error;
    CHECK(stasis_session_rewind(session.get(), info.rewind_floor - 1, 0, nullptr, &error) ==
          STASIS_UNSUPPORTED);
    CHECK(contains(error, std::to_string(info.rewind_floor)));
    CHECK(stasis_session_rewind(session.get(), 151, 0, nullptr, &error) == STASIS_INVALID_ARGUMENT);
    CHECK(digest(session.get()) == before);

    const Tokens tokens = some_tokens(150);
    for (const uint64_t to : {info.rewind_floor, info.rewind_floor - 1}) {
        const Session child = fork(session.get());
        REQUIRE(stasis_session_rewind(child.get(), to,
                                      to < info.rewind_floor ? STASIS_REWIND_RECOMPUTE : 0, nullptr,
                                      &error) == STASIS_OK);
        const Tokens kept(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(to));
        CHECK(digest(child.get()) == digest(session_of(gemma(), kept).get()));
    }
    REQUIRE(stasis_session_rewind(session.get(), 0, 0, nullptr, &error) == STASIS_OK);
    CHECK(digest(session.get()) == digest(create(gemma()).get()));
}

TEST_CASE("stasis_session_logits: before the first position there is nothing to draw from") {
    const Session session = create(gemma());
    stasis_error error;
    std::vector<float> row(192);
    size_t count = 0;
    stasis_token token = 0;
    double score = 0;
    CHECK(stasis_session_logits(session.get(), row.data(), 192, &count, &error) ==
          STASIS_NOT_FOUND);
    CHECK(stasis_session_top(session.get(), 1, &token, row.data(), &error) == STASIS_NOT_FOUND);
    CHECK(stasis_session_sample(session.get(), &token, &error) == STASIS_NOT_FOUND);
    CHECK(stasis_session_decode(session.get(), &token, &error) == STASIS_NOT_FOUND);
    CHECK(stasis_session_generate(session.get(), nullptr, nullptr, &error) == STASIS_NOT_FOUND);
    CHECK(stasis_session_score(session.get(), &token, 1, &score, nullptr, &error) ==
          STASIS_NOT_FOUND);
    CHECK(position(session.get()) == 0);
}

TEST_CASE("stasis_session_top: top, logits and the logits callback agree bit for bit") {
    const Session session = create(gemma());
    std::vector<float> last;
    uint64_t calls = 0;
    struct Seen {
        std::vector<float> &last;
        uint64_t &calls;
    } seen{last, calls};
    auto options = sized<stasis_run_options>();
    options.chunk = 7;
    options.logits_user = &seen;
    options.logits = [](void *user, uint64_t at, const float *row, size_t count) -> int32_t {
        auto &into = *static_cast<Seen *>(user);
        into.last.assign(row, row + count);
        return at == into.calls++ ? 0 : 1;
    };
    const Tokens tokens = some_tokens(30);
    REQUIRE(stasis_session_append(session.get(), tokens.data(), 30, &options, nullptr) ==
            STASIS_OK);
    CHECK(calls == 30);
    CHECK(last == logits(session.get()));
    Tokens best(192);
    std::vector<float> probabilities(192);
    REQUIRE(stasis_session_top(session.get(), 192, best.data(), probabilities.data(), nullptr) ==
            STASIS_OK);
    for (size_t i = 1; i < best.size(); ++i) {
        const float a = last[best[i - 1]], b = last[best[i]];
        CHECK((a > b || (a == b && best[i - 1] < best[i])));
    }
    CHECK(draw(session.get()) == best[0]); // greedy
}

TEST_CASE("stasis_session_set_sampling: sampling settings reach the sampler, and bad ones are "
          "refused by name") {
    const Session session = session_of(gemma(), some_tokens(20));
    auto sampling = sized<stasis_sampling>();
    stasis_error error;
    sampling.top_p = 1.5F;
    CHECK(stasis_session_set_sampling(session.get(), &sampling, &error) == STASIS_INVALID_ARGUMENT);
    CHECK(contains(error, "top_p"));
    sampling.top_p = 0;
    sampling.temperature = 3.0F;
    sampling.seed = 1;
    REQUIRE(stasis_session_set_sampling(session.get(), &sampling, &error) == STASIS_OK);
    const Session other = fork(session.get()); // takes the settings along
    const Tokens drawn = draw(session.get(), 12);
    CHECK(draw(other.get(), 12) == drawn);
    CHECK(stasis_session_rewind(other.get(), 20, 0, nullptr, nullptr) == STASIS_OK);
    sampling.seed = 2;
    REQUIRE(stasis_session_set_sampling(other.get(), &sampling, &error) == STASIS_OK);
    CHECK(draw(other.get(), 12) != drawn);

    // A bias by token, given out of order: everything but token 3 is forbidden.
    Tokens tokens;
    std::vector<float> bias;
    for (stasis_token token = 192; token-- > 0;) {
        if (token != 3) {
            tokens.push_back(token);
            bias.push_back(-std::numeric_limits<float>::infinity());
        }
    }
    sampling.bias_count = 191;
    sampling.bias_tokens = tokens.data();
    sampling.bias = bias.data();
    REQUIRE(stasis_session_set_sampling(other.get(), &sampling, &error) == STASIS_OK);
    stasis_token token = 0;
    REQUIRE(stasis_session_sample(other.get(), &token, &error) == STASIS_OK);
    CHECK(token == 3);
    tokens[0] = tokens[1];
    CHECK(stasis_session_set_sampling(other.get(), &sampling, &error) == STASIS_INVALID_ARGUMENT);
    CHECK(stasis_session_set_sampling(other.get(), nullptr, &error) == STASIS_OK);
    const Session greedy = session_of(gemma(), some_tokens(20));
    REQUIRE(stasis_session_rewind(other.get(), 20, 0, nullptr, nullptr) == STASIS_OK);
    CHECK(draw(other.get(), 5) == draw(greedy.get(), 5));
}

TEST_CASE(
    "stasis_session_tokens: tokens come with their sources, and generation tells of every one") {
    const Session session = session_of(gemma(), some_tokens(10));
    struct Seen {
        Tokens tokens;
        uint64_t stop_after;
    } seen{{}, 4};
    auto options = sized<stasis_generate_options>();
    options.flags = STASIS_GENERATE_IGNORE_END;
    options.callback_user = &seen;
    options.callback = [](void *user, const stasis_generated *event) -> int32_t {
        auto &into = *static_cast<Seen *>(user);
        into.tokens.push_back(event->token);
        const bool right = event->struct_size == sizeof *event && event->length == 0 &&
                           event->position == 9 + into.tokens.size();
        return right && into.tokens.size() < into.stop_after ? 0 : 1;
    };
    auto result = sized<stasis_generate_result>();
    stasis_error error;
    CHECK(stasis_session_generate(session.get(), &options, &result, &error) == STASIS_STOPPED);
    CHECK(result.stop_reason == STASIS_STOP_CALLBACK);
    CHECK(result.begin == 10);
    CHECK(result.count == 4);
    CHECK(position(session.get()) == 14);
    seen.stop_after = UINT64_MAX;
    options.tokens_max = 6;
    CHECK(stasis_session_generate(session.get(), &options, &result, &error) == STASIS_OK);
    CHECK(result.stop_reason == STASIS_STOP_LENGTH);
    CHECK(result.count == 6);
    options.stop_tokens = &seen.tokens[4];
    options.stop_token_count = 1;
    REQUIRE(stasis_session_rewind(session.get(), 10, 0, nullptr, nullptr) == STASIS_OK);
    options.callback = nullptr;
    CHECK(stasis_session_generate(session.get(), &options, &result, &error) == STASIS_OK);
    CHECK(result.stop_reason == STASIS_STOP_END_TOKEN);

    Tokens tokens(15);
    std::vector<uint8_t> sources(15);
    size_t count = 0;
    REQUIRE(stasis_session_tokens(session.get(), 0, tokens.data(), sources.data(), 15, &count,
                                  nullptr) == STASIS_OK);
    CHECK(count == 10 + result.count);
    for (size_t i = 0; i < count; ++i) {
        CHECK(sources[i] == (i < 10 ? STASIS_SOURCE_PROMPT : STASIS_SOURCE_SAMPLED));
        CHECK(tokens[i] == (i < 10 ? some_tokens(10)[i] : seen.tokens[i - 10]));
    }
}
