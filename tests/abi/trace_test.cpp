// The trace: its events of pages and operations, their receivers, its end; and the detection of
// missing events. trace_walk_test.cpp replays events over a random walk.
#include <algorithm>
#include <cfenv>
#include <set>

#include "tests/abi/trace_model.h"

using namespace abi_test;

namespace {

constexpr uint64_t kPage = 64;

// A session's description, and the number of events at that time.
struct Moment {
    size_t events;
    stasis_session_info info;
};

// Replays the events with one left out (or none); what is wrong at the first moment that shows it.
std::string replay_without(const std::vector<stasis_trace_event> &events, size_t left_out,
                           const std::vector<Moment> &moments) {
    TraceModel model;
    std::string wrong;
    size_t told = 0;
    for (const Moment &moment : moments) {
        for (; told < moment.events; ++told) {
            if (told != left_out) {
                model.apply(events[told]);
            }
        }
        wrong = wrong.empty() ? model.differs(moment.info) : wrong;
    }
    return wrong;
}

} // namespace

TEST_CASE("stasis_session_set_trace: an event that is left out, or told twice, is noticed") {
    TraceModel trace;
    const Session session = create(gemma());
    trace.follow(session.get());
    std::vector<Moment> moments;
    const auto look = [&] { moments.push_back({trace.events.size(), info_of(session)}); };
    append(session.get(), some_tokens(150));
    look();
    const Session child = fork(session.get());
    append(session.get(), some_tokens(170, 2));
    look();
    REQUIRE(stasis_session_rewind(session.get(), 290, 0, nullptr, nullptr) == STASIS_OK);
    look();
    REQUIRE(stasis_session_evict(session.get(), 60, 200, nullptr) == STASIS_OK);
    look();
    REQUIRE(replay_without(trace.events, SIZE_MAX, moments) == "");
    CHECK(trace.counts[STASIS_TRACE_COPIED] > 0);
    size_t left_out = 0;
    for (size_t i = 0; i < trace.events.size(); ++i) {
        const uint32_t kind = trace.events[i].kind;
        if (kind == STASIS_TRACE_COPIED || kind == STASIS_TRACE_FORK ||
            kind == STASIS_TRACE_EVICT) {
            continue; // the pages are as many, and as full, without
        }
        CAPTURE(i);
        CAPTURE(kind);
        CHECK(replay_without(trace.events, i, moments) != "");
        ++left_out;
        if (kind != STASIS_TRACE_FILLED) {
            std::vector<stasis_trace_event> twice = trace.events;
            twice.insert(twice.begin() + static_cast<ptrdiff_t>(i), trace.events[i]);
            std::vector<Moment> later = moments;
            for (Moment &moment : later) {
                moment.events += moment.events > i ? 1 : 0;
            }
            CHECK(replay_without(twice, SIZE_MAX, later) != "");
        }
    }
    CHECK(left_out > 10);
}

TEST_CASE("stasis_session_set_trace: digests of pages are those of the same pages in any session") {
    for (stasis_model *model : {gemma(), llama()}) {
        const Tokens tokens = some_tokens(300);
        TraceModel one, pieces, known, loaded;
        const Session first = create(model, 0, 0, 5);
        one.follow(first.get());
        append(first.get(), tokens);

        const Session alone = create(model);
        pieces.follow(alone.get());
        for (size_t i = 0; i < tokens.size(); i += 30) {
            append(alone.get(), {tokens.begin() + static_cast<ptrdiff_t>(i),
                                 tokens.begin() + static_cast<ptrdiff_t>(i + 30)});
        }
        CHECK(pieces.digests == one.digests);

        const Session second = create(model, 0, 0, 5);
        known.follow(second.get());
        append(second.get(), tokens);
        CHECK(known.counts[STASIS_TRACE_SHARED] > 0);
        CHECK(known.counts[STASIS_TRACE_FILLED] == 0);
        for (const auto &[place, digest] : known.digests) {
            CHECK(one.digests.at(place) == digest);
        }

        const Folder folder;
        REQUIRE(save(first.get(), folder.file("s")) == STASIS_OK);
        CHECK(TraceModel::digest_in(one.events.back()) == digest(first.get()));
        const stasis_trace_options tracing = loaded.options();
        auto options = sized<stasis_load_options>();
        options.trace = &tracing;
        stasis_session *third = nullptr;
        REQUIRE(stasis_session_load(model, folder.file("s").c_str(), &options, &third, nullptr) ==
                STASIS_OK);
        const Session back(third);
        CHECK(loaded.counts[STASIS_TRACE_TAKEN] > 0);
        CHECK(!loaded.digests.empty());
        for (const auto &[place, digest] : loaded.digests) {
            CHECK(one.digests.at(place) == digest);
        }
    }
}

TEST_CASE("stasis_session_set_trace: what is shared, copied and undone is told as that") {
    const Tokens tokens = some_tokens(200);
    TraceModel parent, child;
    const Session session = create(llama());
    parent.follow(session.get());
    append(session.get(), tokens);
    const uint64_t bytes = parent.pages.begin()->second.bytes;
    CHECK(parent.counts[STASIS_TRACE_TAKEN] == 4);
    CHECK(parent.counts[STASIS_TRACE_FILLED] == 3);
    CHECK(parent.events.back().kind == STASIS_TRACE_APPEND);
    CHECK(parent.events.back().bytes == 200 * (bytes / kPage));
    const Session forked = fork(session.get());
    CHECK(parent.events.back().kind == STASIS_TRACE_FORK);
    child.follow(forked.get());
    CHECK(child.counts[STASIS_TRACE_HELD] == 4);
    append(forked.get(), some_tokens(1));
    CHECK(child.counts[STASIS_TRACE_COPIED] == 1);
    CHECK(parent.counts[STASIS_TRACE_COPIED] == 0);

    // Nothing but the pages that come and go again, then UNDONE.
    const size_t before = parent.events.size();
    auto options = sized<stasis_run_options>();
    options.chunk = 32;
    options.progress = [](void *, uint64_t done, uint64_t) -> int32_t { return done >= 96; };
    CHECK(stasis_session_append(session.get(), tokens.data(), 200, &options, nullptr) ==
          STASIS_STOPPED);
    CHECK(parent.events.size() > before + 2);
    CHECK(parent.events.back().kind == STASIS_TRACE_UNDONE);
    CHECK(parent.events.back().begin == 200);
    CHECK(parent.events.back().end == 400);
    CHECK(parent.counts[STASIS_TRACE_APPEND] == 1);
    CHECK(parent.differs(session.get()) == "");
}

TEST_CASE("stasis_session_set_trace: a pool without pages: what was taken is told to go") {
    auto budget = sized<stasis_model_options>();
    TraceModel measure;
    {
        const Session session = create(llama());
        measure.follow(session.get());
        append(session.get(), some_tokens(1));
    }
    budget.kv_budget_bytes = measure.pages.begin()->second.bytes * 5;
    const Model model = open_path(test_data("zoo/llama-gqa-untied"), &budget);
    TraceModel one, other;
    const Session first = create(model.get()), second = create(model.get());
    one.follow(first.get());
    other.follow(second.get());
    append(first.get(), some_tokens(130));
    const Tokens tokens = some_tokens(64 * 3);
    CHECK(stasis_session_append(second.get(), tokens.data(), tokens.size(), nullptr, nullptr) ==
          STASIS_POOL_EXHAUSTED);
    CHECK(other.events.back().kind == STASIS_TRACE_UNDONE);
    CHECK(other.differs(second.get()) == "");
    CHECK(one.differs(first.get()) == "");
}

TEST_CASE("stasis_session_set_trace: reads are told when asked for, as far as a query sees") {
    for (stasis_model *model : {gemma(), llama()}) {
        TraceModel with, without;
        const Session session = create(model), quiet = create(model);
        with.follow(session.get(), STASIS_TRACE_READS);
        without.follow(quiet.get());
        for (const Session *each : {&session, &quiet}) {
            append(each->get(), some_tokens(190));
            stasis_token token = 0;
            REQUIRE(stasis_session_evict(each->get(), 64, 128, nullptr) == STASIS_OK);
            REQUIRE(stasis_session_decode(each->get(), &token, nullptr) == STASIS_OK);
        }
        CHECK(without.counts[STASIS_TRACE_READ] == 0);
        CHECK(with.events.size() == without.events.size() + with.counts[STASIS_TRACE_READ]);
        std::vector<stasis_trace_event> last; // of the decoded token
        for (const stasis_trace_event &event : with.events) {
            if (event.kind == STASIS_TRACE_READ && event.end > 190) {
                last.push_back(event);
            }
        }
        REQUIRE(!last.empty());
        for (const stasis_trace_event &event : last) {
            CHECK(event.end == 191);
            CHECK(event.begin >= (event.window == 0 ? 128 : 191 - event.window));
        }
        const auto whole = [](const stasis_trace_event &event) {
            return event.kind == STASIS_TRACE_READ && event.window == 0 && event.begin == 0 &&
                   event.end == 64;
        };
        CHECK(std::count_if(with.events.begin(), with.events.end(), whole) == 1);
        CHECK(digest(session.get()) == digest(quiet.get()));
    }
}

namespace {

struct TracedHost {
    stasis_session *session = nullptr;
    std::set<stasis_status> statuses = {};
    std::set<int> rounding = {};
    std::set<std::thread::id> threads = {};
    int released = 0;

    stasis_trace_options options() {
        auto result = sized<stasis_trace_options>();
        result.user = this;
        result.callback = [](void *user, const stasis_trace_event *event) {
            TracedHost &host = *static_cast<TracedHost *>(user);
            auto info = sized<stasis_session_info>();
            host.statuses.insert(stasis_session_get_info(host.session, &info, nullptr));
            host.rounding.insert(std::fegetround());
            host.threads.insert(std::this_thread::get_id());
            CHECK(event->struct_size == sizeof *event);
        };
        result.release = [](void *user) { ++static_cast<TracedHost *>(user)->released; };
        return result;
    }
};

} // namespace

TEST_CASE("stasis_session_set_trace: the callback is on the caller's thread, in its environment, "
          "and gets BUSY") {
    TracedHost host;
    const Session session = create(gemma());
    host.session = session.get();
    const stasis_trace_options options = host.options();
    REQUIRE(stasis_session_set_trace(session.get(), &options, nullptr) == STASIS_OK);
    const Tokens tokens = some_tokens(200);
    std::fesetround(FE_UPWARD);
    const stasis_status status =
        stasis_session_append(session.get(), tokens.data(), tokens.size(), nullptr, nullptr);
    auto item = sized<stasis_step_item>();
    item.session = session.get();
    item.flags = STASIS_STEP_SAMPLE;
    const stasis_status stepped =
        stasis_sessions_step(&item, sizeof item, 1, nullptr, 0, nullptr, nullptr);
    std::fesetround(FE_TONEAREST);
    REQUIRE(status == STASIS_OK);
    REQUIRE(stepped == STASIS_OK);
    CHECK(host.statuses == std::set<stasis_status>{STASIS_BUSY});
    CHECK(host.rounding == std::set<int>{FE_UPWARD});
    CHECK(host.threads == std::set<std::thread::id>{std::this_thread::get_id()});
    Session plain = session_of(gemma(), tokens);
    stasis_token token = 0;
    REQUIRE(stasis_session_decode(plain.get(), &token, nullptr) == STASIS_OK);
    CHECK(digest(session.get()) == digest(plain.get()));
}

TEST_CASE("stasis_session_set_trace: it ends once, when another takes its place, when switched "
          "off, when freed") {
    TraceModel first, second, third;
    Session session = session_of(llama(), some_tokens(100));
    first.follow(session.get());
    stasis_error error;
    auto bad = second.options(2);
    CHECK(stasis_session_set_trace(session.get(), &bad, &error) == STASIS_UNSUPPORTED);
    bad = second.options();
    bad.callback = nullptr;
    CHECK(stasis_session_set_trace(session.get(), &bad, &error) == STASIS_INVALID_ARGUMENT);
    CHECK(first.released + second.released == 0);
    const size_t before = first.events.size();
    append(session.get(), some_tokens(5));
    CHECK(first.events.size() > before); // still on
    second.follow(session.get());
    CHECK(first.released == 1);
    REQUIRE(stasis_session_set_trace(session.get(), nullptr, nullptr) == STASIS_OK);
    CHECK(second.released == 1);
    const size_t told = second.events.size();
    append(session.get(), some_tokens(70));
    CHECK(second.events.size() == told);
    third.follow(session.get());
    const Session child = fork(session.get());
    const size_t until_fork = third.events.size();
    append(child.get(), some_tokens(70)); // which inherits no trace
    CHECK(third.events.size() == until_fork);
    session.reset();
    CHECK(third.released == 1);
    CHECK(first.released + second.released == 2);
    CHECK(third.events.size() == until_fork);

    // A load that fails keeps nothing of it.
    TraceModel none;
    const stasis_trace_options tracing = none.options();
    auto options = sized<stasis_load_options>();
    options.trace = &tracing;
    stasis_session *loaded = nullptr;
    CHECK(stasis_session_load(llama(), "/no/such/file", &options, &loaded, nullptr) ==
          STASIS_NOT_FOUND);
    CHECK(none.released == 0);
    CHECK(none.events.empty());
}
