// Audits: what a share of the pages proves, what it misses and how often, and what it cannot reach.
#include <cmath>
#include <limits>

#include "tests/runtime/stored_state.h"

using namespace stasis;
using test::conversation;
using test::StoredState;

namespace {

VerifyReport audited(const std::shared_ptr<Model> &model, const StoredState &stored, double percent,
                     uint64_t seed = 0) {
    const kernels::FloatEnvironment environment;
    AuditOptions options;
    options.percent = percent;
    options.seed = seed;
    return audit(model, stored.state, stored.pages(), options);
}

// A state of 10 pages in which one bit of page `index` is not what the model computes, and
// everything after it is computed from it: only that page differs.
StoredState forged_page(const std::shared_ptr<Model> &model, uint64_t index) {
    const std::unique_ptr<Session> honest = conversation(model, 580);
    const StoredState whole(*model, *honest);
    honest->rewind((index + 1) * kPage, false, AppendOptions());
    StoredState prefix(*model, *honest);
    prefix.flip(*model, model->config.layers - 1, 1, index * kPage + 5);
    prefix.state.digest = state_digest(prefix.state);
    const std::unique_ptr<Session> forger = prefix.restored(model);
    std::vector<uint32_t> rest;
    for (uint64_t i = forger->position(); i < whole.state.log.size(); ++i) {
        rest.push_back(whole.state.log[i].token);
    }
    forger->append(rest, AppendOptions());
    return StoredState(*model, *forger);
}

} // namespace

TEST_CASE("audit: an audit of everything that is the model's own work finds nothing") {
    const kernels::FloatEnvironment environment;
    for (const char *name : {"zoo/llama-gqa-untied", "zoo/gemma3-text", "zoo/mistral-window"}) {
        const std::shared_ptr<Model> model = test::open(name);
        TimelineOptions all;
        all.window_retain = 1000;
        const std::unique_ptr<Session> session = conversation(model, 250, all);
        const StoredState stored(*model, *session);
        const VerifyReport report = audited(model, stored, 100);
        CHECK(!report.first);
        CHECK(report.positions == 310);
        CHECK(report.drawn == 60);
        CHECK(report.pages_reachable == 4); // besides the last one, which is always computed
        CHECK(report.pages_drawn == 4);
        CHECK(report.unreachable_end == 0);
        const VerifyReport part = audited(model, stored, 25, 3);
        CHECK(!part.first);
        CHECK(part.pages_drawn == 1);
        CHECK(part.positions == kPage + 310 % kPage);
    }
}

TEST_CASE(
    "audit: a changed page that all later pages follow from is found as often as an audit says") {
    const kernels::FloatEnvironment environment;
    const std::shared_ptr<Model> model = test::open("zoo/llama-gqa-untied");
    const StoredState stored = forged_page(model, 6);
    const VerifyReport whole = verify(model, stored.state, stored.pages(), VerifyOptions());
    REQUIRE(whole.first);
    CHECK(whole.first->position == 6 * kPage + 5);

    constexpr int kSeeds = 60;
    int hits = 0;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
        const VerifyReport report = audited(model, stored, 30, seed);
        CHECK(report.pages_reachable == 9);
        CHECK(report.pages_drawn == 3);
        if (report.first) {
            CHECK(report.first->element == 1);
            CHECK(report.first->position == 6 * kPage + 5);
            CHECK(report.first->layer == model->config.layers - 1);
            CHECK(report.first->head == model->config.kv_heads - 1);
            CHECK(report.first->part == 1);
            ++hits;
        } else {
            CHECK(report.positions == 3 * kPage + 640 % kPage + (640 % kPage == 0 ? kPage : 0));
        }
        CHECK(audited(model, stored, 30, seed).first.has_value() == report.first.has_value());
    }
    // 3 of 9 pages: 20 of 60 expected, with a standard deviation of 3.7.
    CHECK(hits > 9);
    CHECK(hits < 31);
    CHECK(audited(model, stored, 100).first);
}

TEST_CASE("audit: an audit says which positions it cannot start from") {
    const kernels::FloatEnvironment environment;
    const std::shared_ptr<Model> model = test::open("zoo/gemma3-text");
    const std::unique_ptr<Session> session = conversation(model, 580);
    const uint64_t floor = session->info().rewind_floor;
    REQUIRE(floor > 2 * kPage);
    StoredState stored(*model, *session);
    VerifyReport report = audited(model, stored, 100);
    CHECK(!report.first);
    CHECK(report.unreachable_begin == kPage);
    CHECK(report.unreachable_end == floor);
    CHECK(report.positions == kPage + 640 - floor);

    // A flip that the first page or the last ones hold is found, one in between is out of reach
    // but for what later pages compute from it.
    StoredState first = stored;
    first.flip(*model, 5, 0, 3);
    first.state.digest = state_digest(first.state);
    report = audited(model, first, 100);
    REQUIRE(report.first);
    CHECK(report.first->position == 3);

    for (std::vector<std::vector<uint16_t>> &pages : stored.data) { // keep = none
        std::fill(pages.begin(), pages.end(), std::vector<uint16_t>());
    }
    report = audited(model, stored, 100);
    CHECK(!report.first);
    CHECK(report.positions == kPage);
    CHECK(report.pages_reachable == 1);
    CHECK(report.unreachable_begin == kPage);
    CHECK(report.unreachable_end == 640);
    stored.state.pages[0][0].digest.bytes[7] ^= 1;
    CHECK(audited(model, stored, 100).first);

    const std::unique_ptr<Session> nothing_left = [&] { // not one position to compute again
        TimelineOptions none;
        none.window_retain = 0;
        return conversation(model, 580, none);
    }();
    const StoredState tight(*model, *nothing_left);
    report = audited(model, tight, 100);
    CHECK(!report.first);
    CHECK(report.unreachable_end == nothing_left->info().rewind_floor);

    const std::unique_ptr<Session> young = conversation(model, 0 + 1);
    CHECK(audited(model, StoredState(*model, *young), 1).positions == 61);
    Session empty(model, TimelineOptions());
    CHECK(audited(model, StoredState(*model, empty), 1).positions == 0);
}

TEST_CASE(
    "audit: the last page of an audit vouches for hidden state, logits, best logits and texts") {
    const kernels::FloatEnvironment environment;
    const std::shared_ptr<Model> model = test::open("zoo/llama-gqa-untied");
    const std::unique_ptr<Session> session = conversation(model, 250);
    const StoredState original(*model, *session);
    CHECK(!audited(model, original, 1).first);
    for (int what = 0; what < 4; ++what) {
        StoredState stored = original;
        const uint32_t changed = stored.change_end(what);
        const VerifyReport report = audited(model, stored, 1);
        REQUIRE(report.first);
        CHECK(report.first->element == changed);
    }
}

TEST_CASE("audit: an audit draws tokens again where it has their logits") {
    const kernels::FloatEnvironment environment;
    const std::shared_ptr<Model> model = test::open("zoo/llama-gqa-untied");
    const std::unique_ptr<Session> session = conversation(model, 250);
    // The token at 300 becomes another one, and all that follows is computed from it.
    StoredState stored(*model, *session);
    session->rewind(300, false, AppendOptions());
    std::vector<uint32_t> rest;
    for (uint64_t i = 300; i < 310; ++i) {
        rest.push_back(stored.state.log[i].token);
    }
    rest[0] = (rest[0] + 1) % 191;
    session->append(rest, AppendOptions());
    const std::vector<TokenEntry> entries = stored.state.log;
    stored = StoredState(*model, *session);
    const std::vector<Sampling> samplings = stored.state.samplings;
    for (uint64_t i = 300; i < 310; ++i) {
        stored.state.log[i].source = TokenSource::sampled;
        stored.state.log[i].sampling = entries[i].sampling;
    }
    const VerifyReport report = audited(model, stored, 1);
    REQUIRE(report.first);
    CHECK(report.first->element == 4);
    CHECK(report.first->position == 300);
    CHECK(report.drawn_otherwise >= 1);
}

TEST_CASE("audit: audits are cancelled, tell their progress and refuse impossible shares") {
    const kernels::FloatEnvironment environment;
    const std::shared_ptr<Model> model = test::open("zoo/llama-gqa-untied");
    const std::unique_ptr<Session> session = conversation(model, 250);
    const StoredState stored(*model, *session);
    AuditOptions options;
    options.percent = 50;
    std::vector<uint64_t> seen;
    options.watch.user = &seen;
    options.watch.progress = [](void *user, uint64_t done, uint64_t total) {
        auto &steps = *static_cast<std::vector<uint64_t> *>(user);
        CHECK((steps.empty() || done >= steps.back()));
        CHECK(done <= total);
        steps.push_back(done);
        return true;
    };
    const VerifyReport report = audit(model, stored.state, stored.pages(), options);
    REQUIRE(!seen.empty());
    CHECK(seen.back() == report.positions);

    const auto status = [&](const AuditOptions &given) {
        try {
            audit(model, stored.state, stored.pages(), given);
        } catch (const Error &error) {
            return error.status();
        }
        return Status::ok;
    };
    std::atomic<bool> cancel{true};
    AuditOptions cancelled;
    cancelled.watch.cancel = &cancel;
    CHECK(status(cancelled) == Status::cancelled);
    for (const double percent : {-1.0, 0.0, 100.1, std::numeric_limits<double>::quiet_NaN()}) {
        AuditOptions impossible;
        impossible.percent = percent;
        CHECK(status(impossible) == Status::invalid_argument);
    }
}
