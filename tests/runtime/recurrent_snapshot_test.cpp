// Snapshots of sessions with recurrent layers: their states are exported, restored, computed again
// and compared.
#include <functional>

#include "runtime/snapshot/verify.h"
#include "tests/runtime/models.h"

using namespace stasis;
using namespace stasis::test;

namespace {

struct Exported {
    std::shared_ptr<Model> model = open("zoo/qwen3_5-dense");
    std::vector<uint32_t> tokens;
    std::unique_ptr<Session> session;
    State state;

    explicit Exported(size_t count) : tokens(tokens_for(*model, count)) {
        session = std::make_unique<Session>(model, TimelineOptions());
        session->append(tokens, {});
        state = export_state(*session);
    }
    // Changes one number of a state, and its digest with it, as a forger would.
    void forge(size_t index, size_t at, bool digest) {
        RecurrentState &state_ = state.states[index];
        const auto numbers = std::make_shared<std::vector<float>>(
            state_.data, state_.data + state.recurrent.numbers());
        (*numbers)[at] += 0.5F;
        state_.data = numbers->data();
        state.storage.push_back(numbers);
        if (digest) {
            state_.digest =
                recurrent_state_digest(state_.position, numbers->data(), numbers->size());
            state.digest = state_digest(state);
        }
    }
    VerifyReport verified() { return verify(model, state, pages_of(state, *model), {}); }
};

} // namespace

TEST_CASE("export_state: recurrent states: the last one and the checkpoints, which restore takes") {
    kernels::FloatEnvironment environment;
    Exported exported(700);
    std::vector<uint64_t> positions;
    for (const RecurrentState &each : exported.state.states) {
        positions.push_back(each.position);
        Session calm(exported.model, {});
        calm.append(std::span(exported.tokens).first(each.position), {});
        const StateRef there = calm.timeline().states.at(each.position);
        const size_t count = exported.state.recurrent.numbers();
        CHECK(count == exported.model->state_size());
        CHECK(std::memcmp(there.numbers(), each.data, count * sizeof(float)) == 0);
        CHECK(each.digest == recurrent_state_digest(each.position, each.data, count));
    }
    CHECK(positions == std::vector<uint64_t>{256, 512, 700});
    CHECK(state_digest(exported.state) == exported.session->digest());

    const auto restored = restore_session(exported.model, exported.state, nullptr);
    CHECK(restored->digest() == exported.session->digest());
    CHECK(restored->info().states == 3);
    for (size_t i = 0; i < 20; ++i) {
        CHECK(restored->decode() == exported.session->decode());
    }
    CHECK(restored->digest() == exported.session->digest());
    restored->rewind(600, false, {});
    Session calm(exported.model, {});
    calm.append(std::span(exported.tokens).first(600), {});
    CHECK(restored->digest() == calm.digest());
}

TEST_CASE("restore_session: a recurrent state that is missing, or not the digest's, is refused") {
    kernels::FloatEnvironment environment;
    Exported exported(300);
    exported.state.states.pop_back();
    CHECK_THROWS_AS(restore_session(exported.model, exported.state, nullptr), Error);
    Exported other(300);
    other.forge(1, 10, false);
    CHECK_THROWS_AS(restore_session(other.model, other.state, nullptr), Error);
    // A budget of two states takes the last alone, or with one checkpoint.
    Exported third(700);
    ModelOptions options;
    options.state_budget_bytes = 2 * third.model->states->bytes();
    const auto small = open_model(directory("zoo/qwen3_5-dense"), options);
    const auto restored = restore_session(small, third.state, nullptr);
    CHECK(restored->info().states <= 2);
    CHECK(restored->digest() == third.session->digest());
    restored->decode();
    third.session->decode();
    CHECK(restored->digest() == third.session->digest());
}

TEST_CASE("verify: recurrent states are compared, and the first number that differs is named") {
    kernels::FloatEnvironment environment;
    Exported whole(700);
    CHECK(!whole.verified().first);
    for (const size_t index : {0UL, 2UL}) {
        Exported forged(700);
        const uint64_t size = forged.state.recurrent.state_size();
        forged.forge(index, size + 5, true); // of the second recurrent layer
        const auto first = forged.verified().first;
        REQUIRE(first);
        CHECK(first->position == forged.state.states[index].position - 1);
        CHECK(first->layer == forged.state.recurrent.layers[1]);
        CHECK_MESSAGE(first->message.find("at number 5") != std::string::npos, first->message);
    }
}

TEST_CASE("audit: pages are computed from the recurrent states before them, which must be right") {
    kernels::FloatEnvironment environment;
    Exported whole(700);
    AuditOptions options;
    options.percent = 100;
    const VerifyReport right =
        audit(whole.model, whole.state, pages_of(whole.state, *whole.model), options);
    CHECK(!right.first);
    CHECK(right.positions == 700);
    Exported forged(700);
    forged.forge(0, 5, true);
    CHECK(audit(forged.model, forged.state, pages_of(forged.state, *forged.model), options).first);
    // Pages further behind the state differ on the way to them.
    size_t on_the_way = 0;
    options.percent = 20;
    for (options.seed = 0; options.seed < 16; ++options.seed) {
        const auto first =
            audit(forged.model, forged.state, pages_of(forged.state, *forged.model), options).first;
        on_the_way += first && first->message.find("the cache holds") != std::string::npos ? 1 : 0;
    }
    CHECK(on_the_way > 0);
}

TEST_CASE("recompute_session: the recurrent states are computed again, and compared") {
    kernels::FloatEnvironment environment;
    Exported exported(700);
    const StoredPages none{[](size_t, uint64_t) { return false; }, nullptr, nullptr, nullptr};
    const auto again = recompute_session(exported.model, exported.state, nullptr, none, Watch());
    CHECK(again->digest() == exported.session->digest());
    exported.forge(2, 5, true);
    try {
        recompute_session(exported.model, exported.state, nullptr, none, Watch());
        FAIL("a forged state went unnoticed");
    } catch (const Error &error) {
        CHECK(error.status() == Status::diverged);
    }
}

// Domains of their own: sessions that share pages with each other and with no other test.
TEST_CASE("restore_session: a forged recurrent state reaches no other session") {
    kernels::FloatEnvironment environment;
    const std::vector<uint32_t> tokens = tokens_for(*open("zoo/qwen3_5-dense"), 320);
    const std::span<const uint32_t> all(tokens);
    uint64_t domain = 0xF0;
    for (const uint64_t forged_at : {128, 250}) { // the file ends at a page's end, and within one
        for (const bool known : {false, true}) {
            CAPTURE(forged_at);
            TimelineOptions shared;
            shared.domain = ++domain;
            Exported file(forged_at);
            REQUIRE(file.tokens ==
                    std::vector<uint32_t>(tokens.begin(), tokens.begin() + ptrdiff_t(forged_at)));
            file.forge(file.state.states.size() - 1, 10, true);
            Session honest(file.model, shared);
            if (known) { // its pages are computed ones
                honest.append(all.first(forged_at), {});
            }
            const auto victim = restore_session(file.model, file.state, &shared);
            victim->append(all.subspan(forged_at, 256 - forged_at), {}); // up to a checkpoint
            victim->append(all.subspan(256, 10), {});
            Session other(file.model, shared), plain(file.model, {});
            other.append(all, {});
            plain.append(all, {});
            CHECK(victim->digest() != plain.digest());
            CHECK(other.digest() == plain.digest());
            CHECK(same_bits(other.logits(), plain.logits()));
        }
    }
}

TEST_CASE("restore_session: checkpoints of a file go before what the prefix cache alone holds") {
    kernels::FloatEnvironment environment;
    Exported file(700);
    REQUIRE(file.state.states.size() == 3);
    ModelOptions options;
    options.state_budget_bytes = 4 * file.model->states->bytes();
    const auto model = open_model(directory("zoo/qwen3_5-dense"), options);
    TimelineOptions shared;
    shared.domain = 1;
    Session(model, shared).append(tokens_for(*model, 600, 9), {});
    CHECK(model->states->used_bytes() == 2 * model->states->bytes()); // at 256 and 512
    const auto restored = restore_session(model, file.state, nullptr);
    CHECK(restored->info().states == 3);
}

TEST_CASE("restore_session: evictions beside recurrent layers are refused") {
    Exported file(100);
    file.state.evictions.push_back(
        {90, {{10, 20}}, std::vector<uint16_t>(file.model->config.hidden, 0x3F80)});
    file.state.digest = state_digest(file.state);
    CHECK_THROWS_AS(restore_session(file.model, file.state, nullptr), Error);
}
