// The trace, over a random walk: events alone give each session's page tables after every call.
// STASIS_SEED repeats a walk.
#include <cstdio>
#include <cstdlib>
#include <random>

#include "tests/abi/trace_model.h"

using namespace abi_test;

namespace {

constexpr uint64_t kCapacity = 400;

// Sessions that come and go, each followed by a model that must agree after every call.
struct TraceWalk {
    stasis_model *model;
    std::mt19937_64 dice;
    Folder folder = {};
    std::vector<std::unique_ptr<TraceModel>> traces = {}; // outlive their sessions
    std::vector<Session> sessions = {};
    std::vector<Tokens> logs = {};
    bool saved = false;
    std::map<uint32_t, uint64_t> counts = {};

    TraceWalk(stasis_model *of, uint64_t seed) : model(of), dice(seed) {
        for (size_t i = 0; i < 3; ++i) {
            logs.emplace_back();
            traces.push_back(std::make_unique<TraceModel>());
            // The last one computes everything, the others take what they know of each other.
            sessions.push_back(create(model, kCapacity, i == 1 ? STASIS_WINDOW_RETAIN_NONE : 0,
                                      i == 2 ? STASIS_DOMAIN_PRIVATE : 77));
            traces.back()->follow(sessions.back().get(), flags());
        }
    }
    ~TraceWalk() { sessions.clear(); }

    uint64_t roll(uint64_t below) { return dice() % below; }
    uint32_t flags() { return roll(2) == 0 ? STASIS_TRACE_READS : 0; }
    uint64_t at(size_t i) const { return position(sessions[i].get()); }

    void replace(size_t i, Session session, std::unique_ptr<TraceModel> trace) {
        for (const auto &[kind, count] : traces[i]->counts) {
            counts[kind] += count;
        }
        sessions[i] = std::move(session); // before the model that hears of it goes
        traces[i] = std::move(trace);
    }

    // Two stories, so that sessions come to have the same pages.
    Tokens next_tokens(size_t i, size_t count) {
        const Tokens story = some_tokens(kCapacity + 200, static_cast<uint32_t>(1 + roll(2)));
        const auto begin = story.begin() + static_cast<ptrdiff_t>(at(i));
        return {begin, begin + static_cast<ptrdiff_t>(count)};
    }

    void append_some(size_t i);
    void append_stopped(size_t i);
    void append_refused(size_t i);
    void decode(size_t i);
    void generate(size_t i);
    void step_all(size_t i);
    void fork_to(size_t i);
    void rewind(size_t i);
    void evict(size_t i);
    void save_it(size_t i);
    void load_it(size_t i);
    void look(size_t i);
    void step();
};

void TraceWalk::append_some(size_t i) {
    auto options = sized<stasis_run_options>();
    options.chunk = static_cast<uint32_t>(roll(3) == 0 ? 17 : 0);
    const Tokens tokens = next_tokens(i, 1 + roll(roll(2) == 0 ? 200 : 20));
    const stasis_status status =
        stasis_session_append(sessions[i].get(), tokens.data(), tokens.size(), &options, nullptr);
    REQUIRE((status == STASIS_OK || status == STASIS_FULL));
}

void TraceWalk::append_stopped(size_t i) {
    uint64_t left = roll(6);
    auto options = sized<stasis_run_options>();
    options.chunk = 16;
    options.progress_user = &left;
    options.progress = [](void *user, uint64_t, uint64_t) -> int32_t {
        return (*static_cast<uint64_t *>(user))-- == 0;
    };
    const Tokens tokens = next_tokens(i, 150);
    const stasis_status status =
        stasis_session_append(sessions[i].get(), tokens.data(), tokens.size(), &options, nullptr);
    REQUIRE((status == STASIS_OK || status == STASIS_STOPPED || status == STASIS_FULL));
}

void TraceWalk::append_refused(size_t i) {
    const Tokens tokens(10, UINT32_MAX);
    REQUIRE(stasis_session_append(sessions[i].get(), tokens.data(), tokens.size(), nullptr,
                                  nullptr) == STASIS_INVALID_ARGUMENT);
}

void TraceWalk::decode(size_t i) {
    stasis_token token = 0;
    for (uint64_t left = 1 + roll(5); left > 0; --left) {
        stasis_session_decode(sessions[i].get(), &token, nullptr);
    }
}

void TraceWalk::generate(size_t i) {
    auto draft = sized<stasis_draft_options>();
    draft.tokens_min = draft.tokens_max = 8;
    REQUIRE(stasis_session_set_draft(sessions[i].get(), nullptr, roll(4) == 0 ? nullptr : &draft,
                                     nullptr) == STASIS_OK);
    auto options = sized<stasis_generate_options>();
    options.flags = STASIS_GENERATE_IGNORE_END;
    options.tokens_max = 1 + roll(40);
    stasis_session_generate(sessions[i].get(), &options, nullptr, nullptr);
}

void TraceWalk::step_all(size_t) {
    const Tokens tokens = some_tokens(60, static_cast<uint32_t>(roll(3)));
    std::vector<stasis_step_item> items;
    for (const Session &session : sessions) {
        auto item = sized<stasis_step_item>();
        item.session = session.get();
        item.begin = roll(20);
        item.count = roll(30);
        item.flags = roll(2) == 0 ? STASIS_STEP_SAMPLE : 0;
        items.push_back(item);
    }
    REQUIRE(stasis_sessions_step(items.data(), sizeof items[0], items.size(), tokens.data(),
                                 tokens.size(), nullptr, nullptr) == STASIS_OK);
}

void TraceWalk::fork_to(size_t i) {
    const size_t child = roll(sessions.size());
    auto trace = std::make_unique<TraceModel>();
    Session forked = fork(sessions[i].get());
    trace->follow(forked.get(), flags());
    REQUIRE(traces[i]->differs(sessions[i].get()).empty());
    replace(child, std::move(forked), std::move(trace));
}

void TraceWalk::rewind(size_t i) {
    const uint64_t back = roll(roll(3) == 0 ? at(i) + 1 : std::min<uint64_t>(at(i) + 1, 70));
    stasis_session_rewind(sessions[i].get(), at(i) - back,
                          roll(2) == 0 ? STASIS_REWIND_RECOMPUTE : 0, nullptr, nullptr);
}

void TraceWalk::evict(size_t i) {
    const uint64_t begin = roll(at(i) + 1);
    const uint64_t end = begin + roll(at(i) - begin + 1);
    REQUIRE(stasis_session_evict(sessions[i].get(), begin, end, nullptr) == STASIS_OK);
}

void TraceWalk::save_it(size_t i) {
    REQUIRE(save_as(sessions[i].get(), folder.file("s" + std::to_string(roll(1 << 30))),
                    STASIS_CODEC_RAW) == STASIS_OK);
    auto options = sized<stasis_save_options>();
    options.flags = STASIS_SAVE_REPLACE;
    options.keep = roll(3) == 0 ? STASIS_KEEP_NONE : STASIS_KEEP_FULL;
    REQUIRE(stasis_session_save(sessions[i].get(), folder.file("s").c_str(), &options, nullptr) ==
            STASIS_OK);
    saved = true;
}

void TraceWalk::load_it(size_t i) {
    if (!saved) {
        return;
    }
    auto trace = std::make_unique<TraceModel>();
    const stasis_trace_options tracing = trace->options(flags());
    auto own = sized<stasis_session_options>();
    own.capacity = kCapacity;
    own.domain = roll(2) == 0 ? 77 : STASIS_DOMAIN_PRIVATE;
    auto options = sized<stasis_load_options>();
    options.flags = roll(2) == 0 ? STASIS_LOAD_TRUSTED : 0;
    options.session = &own;
    options.trace = &tracing;
    stasis_session *loaded = nullptr;
    stasis_error error;
    const stasis_status status =
        stasis_session_load(model, folder.file("s").c_str(), &options, &loaded, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    REQUIRE(trace->events.back().kind == STASIS_TRACE_LOAD);
    REQUIRE(TraceModel::digest_in(trace->events.back()) == digest(loaded));
    replace(i, Session(loaded), std::move(trace));
}

// Calls that leave the table as it is.
void TraceWalk::look(size_t i) {
    const Tokens tokens = next_tokens(i, 20);
    std::vector<double> scores(tokens.size());
    stasis_session_score(sessions[i].get(), tokens.data(), tokens.size(), scores.data(), nullptr,
                         nullptr);
    stasis_token token = 0;
    stasis_session_sample(sessions[i].get(), &token, nullptr);
    digest(sessions[i].get());
}

void TraceWalk::step() {
    using Act = void (TraceWalk::*)(size_t);
    static const Act acts[] = {&TraceWalk::append_some,    &TraceWalk::append_some,
                               &TraceWalk::append_some,    &TraceWalk::append_stopped,
                               &TraceWalk::append_refused, &TraceWalk::decode,
                               &TraceWalk::generate,       &TraceWalk::generate,
                               &TraceWalk::step_all,       &TraceWalk::fork_to,
                               &TraceWalk::rewind,         &TraceWalk::rewind,
                               &TraceWalk::evict,          &TraceWalk::save_it,
                               &TraceWalk::load_it,        &TraceWalk::look};
    const size_t act = roll(std::size(acts)), on = roll(sessions.size());
    CAPTURE(act);
    (this->*acts[act])(on);
    for (size_t i = 0; i < sessions.size(); ++i) {
        CAPTURE(i);
        REQUIRE(traces[i]->differs(sessions[i].get()) == "");
    }
}

} // namespace

TEST_CASE("stasis_session_set_trace: replayed, the events give the page tables after every call of "
          "a random walk") {
    const char *given = std::getenv("STASIS_SEED");
    const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
    std::map<uint32_t, uint64_t> counts;
    for (stasis_model *model : {gemma(), llama()}) {
        TraceWalk walk(model, seed);
        for (int step = 0; step < 250; ++step) {
            CAPTURE(seed);
            CAPTURE(step);
            walk.step();
        }
        for (size_t i = 0; i < walk.sessions.size(); ++i) {
            walk.replace(i, {}, std::make_unique<TraceModel>());
        }
        for (const auto &[kind, count] : walk.counts) {
            counts[kind] += count;
        }
    }
    for (uint32_t kind = STASIS_TRACE_HELD; kind <= STASIS_TRACE_LOAD; ++kind) {
        CAPTURE(kind);
        CHECK(counts[kind] > 0);
        std::printf("trace: kind %u: %llu events\n", kind,
                    static_cast<unsigned long long>(counts[kind]));
    }
}
