// What follows from the last position, computed again after a rewind: with recurrent layers such a
// call can be cancelled, and needs little room for pages.
#include <atomic>
#include <functional>

#include "tests/runtime/models.h"

using namespace stasis;
using namespace stasis::test;

namespace {

const char kAgainModel[] = "zoo/qwen3_5-dense";

// With memory for so many states and, unless 0, pages of each group.
std::shared_ptr<Model> opened_with(uint64_t states, uint64_t pages) {
    const auto model = open(kAgainModel);
    ModelOptions options;
    options.threads = 2;
    options.state_budget_bytes = states * model->states->bytes();
    for (const PageShape &shape : model->page_shapes) {
        options.kv_budget_bytes += pages * shape.bytes();
    }
    return open_model(directory(kAgainModel), options);
}

// Asks to cancel when the first pass of a session begins, and counts the passes.
struct FirstPass {
    std::atomic<bool> cancel{false};
    size_t passes = 0;
    TraceListener listener{[](void *user, const TraceEvent &event) noexcept {
                               auto &self = *static_cast<FirstPass *>(user);
                               if (event.kind == TraceKind::read) {
                                   ++self.passes;
                                   self.cancel = true;
                               }
                           },
                           this, true};
};

struct CancelledCall {
    std::string name;
    std::function<void(Session &, const Watch &)> call; // throws Error(cancelled)
};

void generate_cancelled(Session &session, const Watch &watch) {
    GenerateOptions options;
    options.watch = watch;
    options.tokens_max = 5;
    GenerateResult result;
    session.generate(options, result);
    CHECK(result.reason == StopReason::cancelled);
    CHECK(result.count == 0);
    watch.look(0, 1);
}

void step_cancelled(Session &session, const Watch &watch) {
    const std::vector<uint32_t> none;
    Session other(session.model(), {});
    other.append(tokens_for(*session.model(), 10), {});
    std::vector<StepItem> items = {{&session, none, true}, {&other, none, true}};
    AppendOptions run;
    run.watch = watch;
    run_step(items, run);
    CHECK(other.position() == 10);
    CHECK(items[1].ended_call);
    CHECK(items[0].ended_call);
    REQUIRE(items[0].error != nullptr);
    std::rethrow_exception(items[0].error);
}

} // namespace

TEST_CASE("Timeline::require_hidden: every call after a rewind can be cancelled meanwhile") {
    kernels::FloatEnvironment environment;
    const auto model = opened_with(2, 0);
    const std::vector<uint32_t> tokens = tokens_for(*model, 1400);
    Session calm(model, {});
    calm.append(std::span(tokens).first(1000), {});
    const auto next = calm.fork();
    next->decode();
    const CancelledCall calls[] = {
        {"generate", generate_cancelled},
        {"step", step_cancelled},
        {"append",
         [&](Session &session, const Watch &watch) {
             AppendOptions run;
             run.watch = watch;
             session.append(std::span(tokens).first(5), run);
         }},
        {"score",
         [&](Session &session, const Watch &watch) {
             AppendOptions run;
             run.watch = watch;
             session.score(std::span(tokens).first(1), run);
         }},
        {"export", [](Session &session, const Watch &watch) { export_state(session, watch); }},
        {"logits", [](Session &session, const Watch &watch) { session.logits(watch); }}};
    for (const CancelledCall &each : calls) {
        INFO(each.name);
        Session session(model, {});
        session.append(tokens, {});
        session.rewind(1000, false, {});
        REQUIRE(session.timeline().states.nearest(999) <= 512); // so that passes are to be saved
        FirstPass first;
        session.set_trace(&first.listener);
        Watch watch;
        watch.cancel = &first.cancel;
        try {
            each.call(session, watch);
            FAIL_CHECK("not cancelled");
        } catch (const Error &error) {
            CHECK(error.status() == Status::cancelled);
        }
        session.set_trace(nullptr);
        CHECK(first.passes == 1);
        CHECK(session.position() == 1000);
        CHECK(session.digest() == calm.digest());
        CHECK(same_bits(session.logits(), calm.logits()));
        session.decode();
        CHECK(session.digest() == next->digest());
    }
}

TEST_CASE("Timeline::require_hidden: one page more than a session has suffices for its states") {
    kernels::FloatEnvironment environment;
    constexpr uint64_t kEnd = 768;
    for (const uint64_t states : {64, 2}) {
        const auto model = opened_with(states, kEnd / kPage + 1);
        const auto roomy = opened_with(states, 0);
        const std::vector<uint32_t> tokens = tokens_for(*model, kEnd);
        Session whole(roomy, {}), session(model, {});
        whole.append(tokens, {});
        session.append(tokens, {});
        for (const uint64_t position : {kEnd - 1, kEnd - 60, kEnd - 64, kEnd - 257}) {
            INFO(position);
            session.rewind(position, false, {});
            session.append(std::span(tokens).subspan(position), {});
            CHECK(session.position() == kEnd);
            CHECK(session.digest() == whole.digest());
            CHECK(same_bits(session.logits(), whole.logits()));
            for (const auto &each : session.timeline().states.all()) {
                CHECK((each.position == kEnd || keeps_checkpoint(each.position, kEnd)));
            }
            CHECK((states == 2 || session.info().states == whole.info().states));
        }
        CHECK(model->pool->used_bytes() == session.info().kv_bytes);
    }
}

TEST_CASE("Timeline::require_hidden: states computed page by page take no room of checkpoints") {
    kernels::FloatEnvironment environment;
    constexpr uint64_t kEnd = 1280;
    const auto model = opened_with(7, kEnd / kPage + 1);
    const std::vector<uint32_t> tokens = tokens_for(*model, kEnd);
    Session session(model, {});
    session.append(tokens, {});
    const size_t held = session.info().states;
    REQUIRE(held == 5); // each 256th
    session.rewind(kEnd - 1, false, {});
    session.logits();
    CHECK(session.info().states == held);
    session.append(std::span(tokens).subspan(kEnd - 1), {});
    CHECK(session.info().states == held);
}
