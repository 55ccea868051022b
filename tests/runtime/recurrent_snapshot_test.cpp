// Snapshots of sessions with recurrent layers: their states are exported, restored, computed again
// and compared.
#include <atomic>
#include <bit>
#include <functional>
#include <random>

#include "runtime/snapshot/verify.h"
#include "tests/runtime/models.h"

using namespace stasis;
using namespace stasis::test;

namespace {

struct Exported {
    std::shared_ptr<Model> model;
    std::vector<uint32_t> tokens;
    std::unique_ptr<Session> session;
    State state;

    explicit Exported(size_t count, const std::string &name = "zoo/qwen3_5-dense")
        : model(open(name)), tokens(tokens_for(*model, count)) {
        session = std::make_unique<Session>(model, TimelineOptions());
        session->append(tokens, {});
        state = export_state(*session);
    }
    // Changes numbers of a state, and with `digest` its digest, as a forger would.
    void change(size_t index, const std::function<void(std::vector<float> &)> &change_numbers,
                bool digest) {
        RecurrentState &state_ = state.states[index];
        const auto numbers = std::make_shared<std::vector<float>>(
            state_.data, state_.data + state.recurrent.numbers());
        change_numbers(*numbers);
        state_.data = numbers->data();
        state.storage.push_back(numbers);
        if (digest) {
            state_.digest =
                recurrent_state_digest(state_.position, numbers->data(), numbers->size());
            state.digest = state_digest(state);
        }
    }
    void forge(size_t index, size_t at, bool digest) {
        change(
            index, [at](std::vector<float> &numbers) { numbers[at] += 0.5F; }, digest);
    }
    VerifyReport verified() { return verify(model, state, pages_of(state, *model), {}); }
};

// Counts the calls of the delta rule by a model, and asks to cancel at the first one if it `asks`.
struct CountedRule {
    static inline std::atomic<bool> cancel = false, asks = false;
    static inline std::atomic<size_t> calls = 0;
    static inline const kernels::Table *counted = nullptr;

    static void call(const kernels::DeltaRule &task) {
        ++calls;
        cancel = cancel || asks;
        counted->delta_rule(task);
    }
    kernels::Table table;
    explicit CountedRule(Model &model) : table(*model.kernels) {
        counted = model.kernels;
        table.delta_rule = call;
        model.kernels = &table;
    }
    static void reset(bool asks_) { cancel = false, asks = asks_, calls = 0; }
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

// The lowest bits of a state are lost where keys and values are rounded to bf16, so these prove
// nothing of the states that follow.
TEST_CASE("restore_session: a forged state that changes no page reaches no other session") {
    kernels::FloatEnvironment environment;
    const std::vector<uint32_t> tokens = tokens_for(*open("zoo/qwen3_5-dense"), 320);
    const std::span<const uint32_t> all(tokens);
    const auto flip_lowest = [](std::vector<float> &numbers) {
        for (float &number : numbers) {
            number = std::bit_cast<float>(std::bit_cast<uint32_t>(number) ^ 1);
        }
    };
    Session plain(open("zoo/qwen3_5-dense"), {});
    plain.append(all, {});
    for (const uint64_t end : {250, 300}) { // before the checkpoint at 256, and with it
        CAPTURE(end);
        TimelineOptions shared;
        shared.domain = 0xE000 + end;
        Exported file(end);
        file.change(0, flip_lowest, true);
        Session honest(file.model, shared), other(file.model, shared);
        honest.append(all.first(std::max<uint64_t>(end, 256)), {});
        while (file.model->pool->drop_oldest_state(true)) { // its pages stay known without one
        }
        const auto victim = restore_session(file.model, file.state, &shared);
        victim->append(all.subspan(end, honest.position() - end), {});
        Timeline &forged = victim->timeline(), &right = honest.timeline();
        for (size_t group = 0; group < forged.pages.size(); ++group) {
            for (uint64_t page = 0; page < 4; ++page) {
                REQUIRE(forged.page_digest_of(group, page) == right.page_digest_of(group, page));
            }
        }
        REQUIRE(forged.states.at(256).digest(256) != right.states.at(256).digest(256));
        other.append(all, {});
        CHECK(other.info().tokens_reused == 0); // no state is known after these pages
        CHECK(other.digest() == plain.digest());
        CHECK(same_bits(other.logits(), plain.logits()));
    }
}

// As long as keys and values are the same, so is a page, but the hidden state may be another one.
TEST_CASE("restore_session: a forged state gives no other session its final hidden state") {
    kernels::FloatEnvironment environment;
    TimelineOptions shared;
    shared.domain = 0xE3;
    shared.trusted = true;
    const Exported right(300);
    const auto honest = restore_session(right.model, right.state, &shared);
    shared.trusted = false;
    const std::span<const uint32_t> all = std::span(right.tokens).first(256);
    Session plain(right.model, {});
    plain.append(all, {});
    Exported file(255);
    const State before = file.state;
    std::mt19937 random(1);
    size_t found = 0;
    for (uint32_t trial = 0; trial < 300 && found == 0; ++trial) {
        file.state = before;
        const auto flip_some = [&](std::vector<float> &numbers) { // of the last recurrent layer
            float &number = numbers[numbers.size() - 1 - random() % (numbers.size() / 6)];
            const uint32_t bits = random() % (1U << (10 + trial % 14));
            number = std::bit_cast<float>(std::bit_cast<uint32_t>(number) ^ bits);
        };
        file.change(0, flip_some, true);
        const auto apart = restore_session(file.model, file.state, nullptr);
        apart->append(all.last(1), {});
        bool same = apart->timeline().hidden.numbers != plain.timeline().hidden.numbers;
        for (size_t group = 0; group < file.model->groups.size(); ++group) {
            same &= apart->timeline().page_digest_of(group, 3) ==
                    plain.timeline().page_digest_of(group, 3);
        }
        found += same ? 1 : 0;
    }
    REQUIRE(found == 1);
    while (file.model->pool->drop_oldest_state(true)) { // so that the victim computes its page
    }
    const auto victim = restore_session(file.model, file.state, &shared);
    victim->append(all.last(1), {});
    Session first(file.model, shared), other(file.model, shared);
    first.append(all, {}); // computes, and gives the page its state again
    other.append(all, {});
    CHECK(other.info().tokens_reused == 256);
    CHECK(other.digest() == plain.digest());
}

TEST_CASE("restore_session: a trusted file's pages and states serve other sessions") {
    kernels::FloatEnvironment environment;
    for (const auto &each : {std::pair{bundled_hybrids()[0], true},
                             {bundled_hybrids()[0], false},
                             {bundled_hybrids()[1], true},
                             {bundled_hybrids()[2], true},
                             {bundled_hybrids()[3], true}}) {
        const std::string &name = each.first;
        const bool trusted = each.second;
        CAPTURE(name);
        CAPTURE(trusted);
        Exported file(600, name);
        TimelineOptions shared;
        shared.domain = trusted ? 0xE1 : 0xE2;
        shared.trusted = trusted;
        const auto restored = restore_session(file.model, file.state, &shared);
        Session other(file.model, shared);
        other.append(file.tokens, {});
        CHECK(other.info().tokens_reused == (trusted ? 512 : 0));
        CHECK(other.digest() == file.session->digest());
        CHECK(same_bits(other.logits(), file.session->logits()));
        Session shorter(file.model, shared), plain(file.model, {}); // ends where a state is
        shorter.append(std::span(file.tokens).first(512), {});
        plain.append(std::span(file.tokens).first(512), {});
        CHECK(shorter.digest() == plain.digest());
    }
}

// The prefix cache has all pages and states but no hidden state, so that the load computes what
// gives the last position, after all else.
TEST_CASE("recompute_session: a load is cancelled while recurrent states are computed again") {
    kernels::FloatEnvironment environment;
    Exported file(512);
    const auto model = open_model(directory("zoo/qwen3_5-dense"), {});
    TimelineOptions shared;
    shared.domain = 1;
    shared.trusted = true;
    const auto restored = restore_session(model, file.state, &shared);
    const StoredPages none{[](size_t, uint64_t) { return false; }, nullptr, nullptr, nullptr};
    const CountedRule rule(*model);
    Watch watch;
    watch.cancel = &CountedRule::cancel;
    CountedRule::reset(true);
    try {
        recompute_session(model, file.state, &shared, none, watch);
        FAIL_CHECK("not cancelled");
    } catch (const Error &error) {
        CHECK(error.status() == Status::cancelled);
    }
    const size_t first = CountedRule::calls;
    CHECK(first > 0);
    CountedRule::reset(false);
    const auto loaded = recompute_session(model, file.state, &shared, none, watch);
    CHECK(loaded->info().tokens_reused == 512);
    CHECK(loaded->digest() == file.session->digest());
    CHECK(CountedRule::calls == 6 * first); // the model has six recurrent layers
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
