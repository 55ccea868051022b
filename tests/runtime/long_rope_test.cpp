// Long RoPE: a session has one of two sets of factors from its first token to its last, and nothing
// that holds or shares its keys confuses the two.
#include "tests/runtime/golden_mistakes.h"
#include "tests/runtime/model_files.h"
#include "tests/runtime/stored_state.h"

using namespace stasis;
using namespace stasis::test;

namespace {

const std::string kLong = "zoo/phi3-longrope", kBelow = "zoo/phi3-longrope-below";
constexpr uint64_t kFrom = 64; // of kLong: a capacity above it has the long factors

TimelineOptions with_capacity(uint64_t capacity) {
    TimelineOptions options;
    options.capacity = capacity;
    options.domain = 3;
    return options;
}

// The digest of a private session of that capacity with these tokens.
Digest plain(const std::shared_ptr<Model> &model, uint64_t capacity,
             std::span<const uint32_t> tokens) {
    TimelineOptions options = with_capacity(capacity);
    options.domain = TimelineOptions::kPrivate;
    Session session(model, options);
    session.append(tokens, {});
    return session.digest();
}

Deviation measure_below(const std::shared_ptr<Model> &model) {
    const Golden values = golden(kBelow);
    TimelineOptions options = with_capacity(model->config.long_rope_from());
    options.domain = TimelineOptions::kPrivate; // a planted mistake contradicts shared pages
    Session session(model, options);
    return deviation_of(append_with_logits(session, values.ids), values);
}

} // namespace

TEST_CASE("logits: long RoPE agrees with the golden values on either side") {
    const kernels::FloatEnvironment environment;
    CHECK(within(measure(open(kLong), golden(kLong))));
    const Deviation below = measure_below(open(kBelow));
    std::printf("golden %-32s rms %.2f and max %.2f of the tolerance\n", kBelow.c_str(), below.rms,
                below.max);
    CHECK(within(below));
}

TEST_CASE("logits: the golden tolerance notices what a port of long RoPE gets wrong") {
    const kernels::FloatEnvironment environment;
    const Mistake mistakes[] = {
        {"the short factors", kLong.c_str(),
         [](Model &m) { m.long_rope_frequencies = m.rope_frequencies; }},
        {"no factors at all", kLong.c_str(),
         [](Model &m) {
             m.long_rope_frequencies[0] =
                 rope_frequencies({.base = m.config.ropes[0].base}, m.config.rotary());
         }},
        {"no amplitude", kLong.c_str(), [](Model &m) { m.config.ropes[0].amplitude = 1; }},
    };
    check_noticed(mistakes);
    // The other side.
    const auto model = open_model(directory(kBelow), {});
    std::swap(model->rope_frequencies, model->long_rope_frequencies);
    CHECK(!within(measure_below(model)));
    std::swap(model->rope_frequencies, model->long_rope_frequencies);
    model->config.ropes[0].amplitude = 1;
    CHECK(!within(measure_below(model)));
}

TEST_CASE("Session: the capacity chooses the side of long RoPE, and all else keeps it") {
    const kernels::FloatEnvironment environment;
    const auto model = open(kLong);
    const std::vector<uint32_t> tokens = tokens_for(*model, kFrom);
    const Digest brief = plain(model, kFrom, tokens), lengthy = plain(model, kFrom + 1, tokens);
    CHECK(brief != lengthy);
    CHECK(plain(model, 1, std::span(tokens).first(1)) ==
          plain(model, kFrom, std::span(tokens).first(1)));
    // A first key turns nowhere, so that the identity alone tells such sessions apart.
    CHECK(plain(model, kFrom, std::span(tokens).first(1)) !=
          plain(model, 0, std::span(tokens).first(1)));
    for (const uint64_t capacity : {kFrom, uint64_t{0}}) {
        CAPTURE(capacity);
        const Digest &expected = capacity == kFrom ? brief : lengthy;
        Session session(model, with_capacity(capacity));
        session.append(tokens, {});
        CHECK(session.digest() == expected);
        CHECK(session.fork()->digest() == expected);
        session.rewind(10, true, {});
        session.append(std::span(tokens).subspan(10), {});
        CHECK(session.digest() == expected);
        session.rewind(0, true, {});
        session.append(tokens, {});
        CHECK(session.digest() == expected);
    }
}

TEST_CASE("Prefixes: sessions on either side of long RoPE share no page") {
    const kernels::FloatEnvironment environment;
    const auto model = open_model(directory(kLong), {});
    const std::vector<uint32_t> tokens = tokens_for(*model, kFrom);
    std::vector<std::unique_ptr<Session>> held;
    for (const uint64_t capacity : {uint64_t{0}, kFrom, kFrom, uint64_t{0}}) {
        auto &session =
            held.emplace_back(std::make_unique<Session>(model, with_capacity(capacity)));
        session->append(tokens, {});
        CHECK(session->info().tokens_reused == (held.size() > 2 ? kFrom : 0));
        CHECK(session->digest() == plain(model, capacity, tokens));
    }
}

TEST_CASE("run_step: sessions of both sides of long RoPE in one pass have the bits of each alone") {
    const kernels::FloatEnvironment environment;
    const auto model = open(kLong);
    const std::vector<uint32_t> tokens = tokens_for(*model, 60);
    Session first(model, with_capacity(kFrom)), second(model, with_capacity(0)),
        third(model, with_capacity(kFrom));
    std::vector<StepItem> items = {{&first, tokens}, {&second, tokens}, {&third, tokens}};
    run_step(items, {});
    for (const StepItem &item : items) {
        REQUIRE(item.error == nullptr);
    }
    CHECK(first.digest() == plain(model, kFrom, tokens));
    CHECK(second.digest() == plain(model, 0, tokens));
    CHECK(third.digest() == first.digest());
}

TEST_CASE("restore_session: a saved session stays on its side of long RoPE") {
    const kernels::FloatEnvironment environment;
    const auto model = open(kLong);
    const std::vector<uint32_t> tokens = tokens_for(*model, kFrom);
    for (const uint64_t capacity : {kFrom, uint64_t{0}}) {
        CAPTURE(capacity);
        Session session(model, with_capacity(capacity));
        session.append(std::span(tokens).first(40), {});
        const StoredState stored(*model, session);
        CHECK(!verified(model, stored).first);
        const Digest expected = plain(model, capacity, tokens);
        const auto loaded = restore_session(model, stored.state, nullptr);
        loaded->append(std::span(tokens).subspan(40), {});
        CHECK(loaded->digest() == expected);
        // A lesser capacity changes nothing; a greater one cannot lend the long factors.
        const TimelineOptions lesser = with_capacity(kFrom), greater = with_capacity(kFrom + 1);
        const auto small = restore_session(model, stored.state, &lesser);
        small->append(std::span(tokens).subspan(40), {});
        CHECK(small->digest() == expected);
        CHECK(small->timeline().long_rope == (capacity == 0));
        const TimelineOptions most = with_capacity(0); // that there may be on its side
        const auto large = restore_session(model, stored.state, &most);
        CHECK(large->timeline().capacity == (capacity == 0 ? model->config.context : kFrom));
        if (capacity == kFrom) {
            expect_error(Status::unsupported, {"up to 64", "65"},
                         [&] { restore_session(model, stored.state, &greater); });
        }
        const auto again = recompute_session(model, stored.state, nullptr, stored.pages(), {});
        CHECK(again->digest() == session.digest());
    }
}
