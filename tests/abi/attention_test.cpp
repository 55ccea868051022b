// Accumulated attention of a session's positions, by the public header: exact whatever happened to
// the session, refused if it is not tracked.
#include <numeric>

#include "tests/abi/fixture.h"

using namespace abi_test;

namespace {

using Weights = std::vector<double>;

Session tracked(stasis_model *model, uint32_t mode = STASIS_TRACK_BY_HEAD) {
    auto options = sized<stasis_session_options>();
    options.track_attention = mode;
    stasis_session *session = nullptr;
    stasis_error error;
    const stasis_status status = stasis_session_create(model, &options, &session, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    return Session(session);
}

Weights attention(const Session &session, uint32_t flags = STASIS_ATTENTION_BY_HEAD) {
    size_t count = 0;
    const stasis_status asked =
        stasis_session_attention(session.get(), flags, nullptr, 0, &count, nullptr);
    REQUIRE((asked == STASIS_BUFFER_TOO_SMALL || (asked == STASIS_OK && count == 0)));
    Weights weights(count);
    stasis_error error;
    const stasis_status status = stasis_session_attention(session.get(), flags, weights.data(),
                                                          weights.size(), &count, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    return weights;
}

// Expected sums: those of a plain run of the same tokens.
Weights fresh(stasis_model *model, const Tokens &tokens) {
    const Session session = tracked(model);
    append(session.get(), tokens);
    return attention(session);
}

size_t heads_of(const stasis_model *model) {
    auto info = sized<stasis_model_info>();
    REQUIRE(stasis_model_get_info(model, &info, nullptr) == STASIS_OK);
    return size_t{info.layers} * info.heads;
}

} // namespace

TEST_CASE("stasis_session_attention: each position gives one for each head, and is asked for in "
          "two ways") {
    for (stasis_model *model : {gemma(), llama()}) {
        const size_t heads = heads_of(model);
        const Session session = tracked(model);
        CHECK(attention(session).empty());
        append(session.get(), some_tokens(100));
        const Weights by_head = attention(session), summed = attention(session, 0);
        REQUIRE(by_head.size() == heads * 100);
        REQUIRE(summed.size() == 100);
        for (size_t position = 0; position < 100; ++position) {
            double sum = 0.0; // sums of multiples of 2^-32 far below 2^53 of them: exact
            for (size_t head = 0; head < heads; ++head) {
                sum += by_head[head * 100 + position];
            }
            CHECK(sum == summed[position]);
        }
        const double all = std::accumulate(summed.begin(), summed.end(), 0.0);
        CHECK(std::abs(all - 100.0 * static_cast<double>(heads)) < 1e-2);
        const Session in_total = tracked(model, STASIS_TRACK_TOTAL);
        append(in_total.get(), some_tokens(100));
        CHECK(attention(in_total, 0) == summed);
        CHECK(digest(in_total.get()) == digest(session_of(model, some_tokens(100)).get()));
    }
}

TEST_CASE("stasis_session_attention: exact after forks, rewinds, steps, saves and loads") {
    const Tokens first = some_tokens(70), second = some_tokens(40, 2);
    const Session session = tracked(gemma());
    append(session.get(), first);
    const Session child = fork(session.get());
    std::vector<stasis_step_item> items(2, sized<stasis_step_item>());
    items[0].session = session.get();
    items[0].count = 40;
    items[1].session = child.get();
    items[1].begin = 40;
    items[1].count = 1;
    const Tokens flat = joined(second, {5});
    REQUIRE(stasis_sessions_step(items.data(), sizeof items[0], 2, flat.data(), flat.size(),
                                 nullptr, nullptr) == STASIS_OK);
    CHECK(attention(session) == fresh(gemma(), joined(first, second)));
    CHECK(attention(child) == fresh(gemma(), joined(first, {5})));
    REQUIRE(stasis_session_rewind(session.get(), 50, STASIS_REWIND_RECOMPUTE, nullptr, nullptr) ==
            STASIS_OK);
    CHECK(attention(session) == fresh(gemma(), some_tokens(50)));

    const Folder folder;
    for (const uint32_t keep : {STASIS_KEEP_FULL, STASIS_KEEP_NONE}) {
        const std::string path = folder.file(std::to_string(keep));
        REQUIRE(save_as(child.get(), path, STASIS_CODEC_RAW, keep) == STASIS_OK);
        const Session loaded = load(gemma(), path);
        CHECK(digest(loaded.get()) == digest(child.get()));
        append(loaded.get(), second);
        CHECK(attention(loaded) == fresh(gemma(), joined(joined(first, {5}), second)));
        // Tracking may begin with a load, and end with one.
        auto options = sized<stasis_session_options>();
        auto how = sized<stasis_load_options>();
        how.session = &options;
        for (const uint32_t mode : {0U, STASIS_TRACK_TOTAL}) {
            options.track_attention = mode;
            stasis_session *other = nullptr;
            REQUIRE(stasis_session_load(gemma(), path.c_str(), &how, &other, nullptr) == STASIS_OK);
            const Session own(other);
            size_t count = 0;
            Weights summed(71);
            CHECK(stasis_session_attention(other, 0, summed.data(), 71, &count, nullptr) ==
                  (mode == 0 ? STASIS_UNSUPPORTED : STASIS_OK));
            CHECK((mode == 0 || summed == attention(child, 0)));
        }
    }
}

TEST_CASE("stasis_session_attention: a cancelled append leaves it, and generating adds to it") {
    const Session session = tracked(llama());
    append(session.get(), some_tokens(70));
    const Weights before = attention(session);
    const Cancel cancel = make_cancel();
    auto run = sized<stasis_run_options>();
    run.cancel = cancel.get();
    run.chunk = 10;
    run.progress_user = cancel.get();
    run.progress = [](void *user, uint64_t done, uint64_t) -> int32_t {
        if (done >= 30) {
            stasis_cancel_request(static_cast<stasis_cancel *>(user));
        }
        return 0;
    };
    const Tokens more = some_tokens(60, 3);
    CHECK(stasis_session_append(session.get(), more.data(), more.size(), &run, nullptr) ==
          STASIS_CANCELLED);
    CHECK(attention(session) == before);
    auto generate = sized<stasis_generate_options>();
    generate.tokens_max = 30;
    generate.flags = STASIS_GENERATE_IGNORE_END;
    REQUIRE(stasis_session_generate(session.get(), &generate, nullptr, nullptr) == STASIS_OK);
    Tokens all(100);
    size_t count = 0;
    REQUIRE(stasis_session_tokens(session.get(), 0, all.data(), nullptr, 100, &count, nullptr) ==
            STASIS_OK);
    CHECK(attention(session) == fresh(llama(), all));
}

TEST_CASE("stasis_session_attention: what is not tracked, not known or too small is refused") {
    const Session plain = session_of(llama(), some_tokens(5));
    const Session in_total = tracked(llama(), STASIS_TRACK_TOTAL);
    append(in_total.get(), some_tokens(5));
    Weights weights(1000, 7.0);
    size_t count = 9;
    stasis_error error;
    CHECK(stasis_session_attention(plain.get(), 0, weights.data(), 1000, &count, &error) ==
          STASIS_UNSUPPORTED);
    CHECK(contains(error, "track_attention"));
    CHECK(stasis_session_attention(in_total.get(), STASIS_ATTENTION_BY_HEAD, weights.data(), 1000,
                                   &count, &error) == STASIS_UNSUPPORTED);
    CHECK(contains(error, "STASIS_TRACK_BY_HEAD"));
    CHECK(stasis_session_attention(in_total.get(), 2, weights.data(), 1000, &count, &error) ==
          STASIS_UNSUPPORTED);
    CHECK(stasis_session_attention(in_total.get(), 0, weights.data(), 4, &count, &error) ==
          STASIS_BUFFER_TOO_SMALL);
    CHECK(count == 5);
    CHECK(weights == Weights(1000, 7.0));
    CHECK(stasis_session_attention(in_total.get(), 0, nullptr, 5, &count, &error) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(contains(error, "weights"));
    CHECK(stasis_session_attention(in_total.get(), 0, weights.data(), 5, nullptr, &error) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(contains(error, "count"));
    CHECK(stasis_session_attention(nullptr, 0, weights.data(), 5, &count, &error) ==
          STASIS_INVALID_ARGUMENT);

    auto options = sized<stasis_session_options>();
    stasis_session *out = nullptr;
    options.track_attention = 3;
    CHECK(stasis_session_create(llama(), &options, &out, &error) == STASIS_UNSUPPORTED);
    CHECK(contains(error, "track_attention"));
    options.track_attention = STASIS_TRACK_TOTAL;
    options.reserved_1 = 1;
    CHECK(stasis_session_create(llama(), &options, &out, &error) != STASIS_OK);
    CHECK(out == nullptr);
    options.struct_size = offsetof(stasis_session_options, track_attention); // of before
    options.reserved_1 = 0;
    REQUIRE(stasis_session_create(llama(), &options, &out, &error) == STASIS_OK);
    const Session older(out);
    CHECK(stasis_session_attention(out, 0, weights.data(), 0, &count, &error) ==
          STASIS_UNSUPPORTED);
}
