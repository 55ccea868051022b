// Unproven contents of a file are only for sessions that load it alone, however its pages are
// filled or cut afterwards; and a call that is undone leaves a session its own pages.
#include "tests/runtime/stored_state.h"

using namespace stasis;
using namespace stasis::test;

namespace {

TimelineOptions common() {
    TimelineOptions options;
    options.domain = 0;
    return options;
}

// A state that says something else of a key than its tokens give, digests and all.
StoredState lie(const std::shared_ptr<Model> &model, std::span<const uint32_t> tokens) {
    Session session(model, {});
    session.append(tokens, {});
    StoredState stored(*model, session);
    stored.flip(*model, 0, 1, 3);
    stored.state.digest = state_digest(stored.state);
    return stored;
}

} // namespace

TEST_CASE(
    "restore_session: a file that lies does so to nobody else, whatever is appended behind it") {
    const kernels::FloatEnvironment environment;
    for (const bool trusted : {false, true}) {
        for (const auto &[saved, cut] :
             {std::pair<size_t, size_t>{10, 10}, {100, 100}, {100, 30}}) {
            const auto model = open_model(directory("zoo/llama-gqa-untied"), {});
            const std::vector<uint32_t> tokens = tokens_for(*model, 200);
            Session truth(model, {});
            truth.append(tokens, {});
            const StoredState stored = lie(model, std::span(tokens).first(saved));
            TimelineOptions options = common();
            options.trusted = trusted;
            const auto liar =
                restore_session(model, stored.state, &options, stored.pages(), Watch());
            liar->rewind(cut, false, {});
            liar->append(std::span(tokens).subspan(cut), {});
            CHECK(liar->digest() != truth.digest());
            Session other(model, common());
            other.append(tokens, {});
            CHECK((other.digest() == truth.digest()) == !trusted); // who trusts is lied to
            if (!trusted) {
                CHECK(other.info().tokens_reused == 0);
                Session third(model, common()); // honest ones share as ever
                third.append(tokens, {});
                CHECK(third.info().tokens_reused == 192);
            }
        }
    }
}

TEST_CASE("restore_session: from the beginning again, what a session computes is proven") {
    const kernels::FloatEnvironment environment;
    const auto model = open_model(directory("zoo/llama-gqa-untied"), {});
    const std::vector<uint32_t> tokens = tokens_for(*model, 130);
    const StoredState stored = lie(model, tokens);
    const TimelineOptions options = common();
    const auto liar = restore_session(model, stored.state, &options, stored.pages(), Watch());
    liar->rewind(0, false, {});
    liar->append(tokens, {});
    Session other(model, common());
    other.append(tokens, {});
    CHECK(other.info().tokens_reused == 128);
    CHECK(other.digest() == liar->digest());
}

TEST_CASE(
    "restore_session: an append that is undone leaves the session the page that was its own") {
    const kernels::FloatEnvironment environment;
    const auto model = open_model(directory("zoo/llama-gqa-untied"), {});
    const std::vector<uint32_t> tokens = tokens_for(*model, 150);
    Session session(model, common()), other(model, common());
    session.append(std::span(tokens).first(10), {});
    const Digest before = session.digest();
    other.append(std::span(tokens).first(64), {});
    AppendOptions run;
    run.chunk = 64;
    run.logits = [](void *, uint64_t position, const float *, size_t) { return position < 100; };
    CHECK_THROWS_AS(session.append(std::span(tokens).subspan(10), run), Error);
    CHECK(session.info().pages_own == 1);
    CHECK(session.info().pages_shared == 0);
    CHECK(session.digest() == before);
    session.append(std::span(tokens).subspan(10), {});
    Session plain(model, {});
    plain.append(tokens, {});
    CHECK(session.digest() == plain.digest());
}
