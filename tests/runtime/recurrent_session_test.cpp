// Sessions of a model with recurrent layers: rewinds to any position, forks, failures, budgets and
// shared prefixes give the bits of a session that did nothing of the kind.
#include <atomic>
#include <climits>
#include <cstdlib>
#include <functional>
#include <random>

#include "tests/runtime/models.h"

using namespace stasis;
using namespace stasis::test;

namespace {

const std::string kRecurrentModel = "zoo/qwen3_5-dense";

std::shared_ptr<Model> opened(uint64_t states_most, const Memory &memory = {}) {
    ModelOptions options;
    options.threads = 2;
    options.memory = memory;
    const uint64_t bytes = open(kRecurrentModel)->states->bytes();
    options.state_budget_bytes = states_most * bytes;
    return open_model(directory(kRecurrentModel), options);
}

void check_error(Status status, const char *words, const std::function<void()> &call) {
    try {
        call();
        FAIL("not refused: " << words);
    } catch (const Error &error) {
        CHECK(error.status() == status);
        CHECK_MESSAGE(std::string(error.what()).find(words) != std::string::npos, error.what());
    }
}

// What sessions that never went further have: digest and logits of each position, computed once.
class Plain {
  public:
    Plain(const std::shared_ptr<Model> &model, std::span<const uint32_t> tokens)
        : session_(model, TimelineOptions()), tokens_(tokens) {}
    // `end` must not fall.
    bool equal(uint64_t end, Session &other) {
        session_.append(tokens_.subspan(session_.position(), end - session_.position()), {});
        return other.position() == end && other.digest() == session_.digest() &&
               same_bits(other.logits(), session_.logits());
    }

  private:
    Session session_;
    std::span<const uint32_t> tokens_;
};

} // namespace

TEST_CASE("Session: a token drawn right after a rewind over recurrent layers is the right one") {
    kernels::FloatEnvironment environment;
    const auto model = opened(64); // whose passes have had one row each
    const std::vector<uint32_t> tokens = tokens_for(*model, 200);
    Session session(model, TimelineOptions()), other(model, TimelineOptions());
    for (const uint32_t &token : tokens) {
        session.append({&token, 1}, {});
    }
    session.rewind(199, false, {});
    const uint32_t drawn = session.decode(); // 199 positions are computed in one pass
    other.append(std::span(tokens).first(199), {});
    CHECK(drawn == other.decode());
    CHECK(session.digest() == other.digest());
}

TEST_CASE("Session: a rewind over recurrent layers to every position of 700 gives its bits") {
    kernels::FloatEnvironment environment;
    for (const uint64_t most : {64UL, 2UL}) {
        const auto model = opened(most);
        const std::vector<uint32_t> tokens = tokens_for(*model, 700);
        Session whole(model, {});
        whole.append(tokens, {});
        CHECK(whole.info().states == (most == 2 ? 2 : 3)); // at 700, 512, and 256
        Plain plain(model, tokens);
        const uint64_t step = whole_sweeps() ? 1 : most == 2 ? 97 : 5;
        for (uint64_t position = 1 + test_seed() % step; position < 700; position += step) {
            const auto fork = whole.fork();
            fork->rewind(position, false, {});
            CHECK(plain.equal(position, *fork));
        }
    }
}

TEST_CASE("Session: a rewind over recurrent layers computes what follows the nearest checkpoint") {
    kernels::FloatEnvironment environment;
    const auto model = opened(64);
    const std::vector<uint32_t> tokens = tokens_for(*model, 1400);
    Session session(model, {});
    session.append(std::span(tokens).first(1400), {});
    for (const uint64_t position : {1399UL, 1281UL, 1280UL, 700UL, 30UL}) {
        session.rewind(position, false, {});
        std::atomic<bool> cancelled{true}; // ends before the first pass, which names its beginning
        PassLease pass(*model);
        Watch watch;
        watch.cancel = &cancelled;
        const uint64_t nearest = (position - 1) / 256 * 256;
        check_error(Status::cancelled,
                    ("at " + std::to_string(nearest) + " of " + std::to_string(position)).c_str(),
                    [&] { session.timeline().require_hidden(*pass, watch); });
    }
    Session calm(model, {});
    calm.append(std::span(tokens).first(30), {});
    CHECK(session.digest() == calm.digest());
}

TEST_CASE("Session: recurrent layers: a random walk equals plain appends of its log") {
    kernels::FloatEnvironment environment;
    for (const uint64_t most : {64UL, 4UL}) {
        const auto model = opened(most);
        std::mt19937 random(static_cast<uint32_t>(test_seed() + most));
        std::vector<std::unique_ptr<Session>> sessions;
        TimelineOptions sharing;
        sharing.domain = 1;
        sessions.push_back(std::make_unique<Session>(model, sharing));
        sessions.push_back(std::make_unique<Session>(model, TimelineOptions()));
        for (size_t step = 0; step < (whole_sweeps() ? 300 : 60); ++step) {
            std::unique_ptr<Session> &session = sessions[random() % sessions.size()];
            const uint64_t position = session->position();
            const uint32_t what = random() % 10;
            AppendOptions run;
            run.chunk = 1 + random() % 300;
            if (what < 4 && position < 1200) {
                session->append(tokens_for(*model, 1 + random() % 400, random() % 3), run);
            } else if (what < 6 && position > 0) {
                session->decode();
            } else if (what < 8) {
                session->rewind(random() % (position + 1), false, {});
            } else if (what == 8) {
                sessions[random() % sessions.size()] = session->fork();
            } else if (sessions.size() < 4) {
                sessions.push_back(session->fork());
            }
            if (step % 10 == 9) {
                Session &any = *sessions[random() % sessions.size()];
                std::vector<uint32_t> tokens;
                for (uint64_t i = 0; i < any.position(); ++i) {
                    tokens.push_back(any.entry(i).token);
                }
                Session calm(open(kRecurrentModel), {});
                calm.append(tokens, {});
                CHECK(any.digest() == calm.digest());
                CHECK((tokens.empty() || same_bits(any.logits(), calm.logits())));
                const uint64_t bytes = model->states->used_bytes();
                CHECK(bytes <= (most + 2 * sessions.size()) * model->states->bytes());
            }
        }
        sessions.clear();
    }
}

TEST_CASE("Session: recurrent layers: a failed append leaves the states that were there") {
    kernels::FloatEnvironment environment;
    struct Failing {
        std::atomic<long> left{LONG_MAX};
    } failing;
    const Memory memory{&failing,
                        [](void *user, size_t size, size_t alignment) -> void * {
                            const size_t whole = (size + alignment - 1) / alignment * alignment;
                            return static_cast<Failing *>(user)->left.fetch_sub(1) > 0
                                       ? std::aligned_alloc(alignment, whole)
                                       : nullptr;
                        },
                        [](void *, void *block, size_t, size_t) { std::free(block); }};
    for (const bool rewound : {false, true}) {
        const auto fresh = opened(64);
        const std::vector<uint32_t> tokens = tokens_for(*fresh, 900);
        Session calm(fresh, {}), calmer(fresh, {});
        calm.append(std::span(tokens).first(400), {});
        calmer.append(tokens, {});
        size_t failures = 0;
        for (long k = 0;; ++k) {
            const auto model = opened(64, memory); // whose free memory hides no request
            Session session(model, {});
            session.append(std::span(tokens).first(rewound ? 420 : 400), {});
            session.rewind(400, false, {});
            failing.left = k;
            bool done = true;
            try {
                session.append(std::span(tokens).subspan(400), {});
            } catch (const Error &error) {
                CHECK(error.status() == Status::no_memory);
                done = false;
                ++failures;
            }
            failing.left = LONG_MAX;
            if (done) {
                CHECK(session.digest() == calmer.digest());
                break;
            }
            CHECK(session.position() == 400);
            CHECK(session.digest() == calm.digest());
            session.append(std::span(tokens).subspan(400), {});
            CHECK(session.digest() == calmer.digest());
        }
        CHECK(failures >= 3); // states at 512, 768 and 900
    }
}

TEST_CASE("Session: recurrent layers: a cancelled or stopped append leaves no trace") {
    kernels::FloatEnvironment environment;
    const auto model = opened(64);
    const std::vector<uint32_t> tokens = tokens_for(*model, 900);
    for (const uint64_t start : {0UL, 256UL, 400UL}) {
        Session session(model, {}), calm(model, {});
        session.append(std::span(tokens).first(start), {});
        calm.append(std::span(tokens).first(start), {});
        AppendOptions run;
        run.watch.progress = [](void *, uint64_t done, uint64_t) { return done < 300; };
        check_error(Status::stopped, "asked to stop",
                    [&] { session.append(std::span(tokens).subspan(start), run); });
        CHECK(session.digest() == calm.digest());
        CHECK(session.info().states == calm.info().states);
        session.append(std::span(tokens).subspan(start), {});
        calm.append(std::span(tokens).subspan(start), {});
        CHECK(session.digest() == calm.digest());
    }
}

TEST_CASE("Session: recurrent layers: a shared prefix ends at a checkpoint") {
    kernels::FloatEnvironment environment;
    const auto model = opened(64);
    const std::vector<uint32_t> tokens = tokens_for(*model, 800);
    TimelineOptions sharing;
    sharing.domain = 7;
    Session plain(model, {});
    plain.append(tokens, {});
    auto first = std::make_unique<Session>(model, sharing);
    first->append(std::span(tokens).first(700), {});
    Session second(model, sharing);
    second.append(tokens, {});
    CHECK(second.info().tokens_reused == 512);
    CHECK(second.digest() == plain.digest());

    // A session inside the prefix takes the rest, also where a rewind has cut its state off.
    Session third(model, sharing);
    third.append(std::span(tokens).first(300), {});
    third.rewind(290, false, {});
    third.append(std::span(tokens).subspan(290), {});
    CHECK(third.info().tokens_reused == 256 + (768 - 290));
    CHECK(third.digest() == plain.digest());
    second.rewind(600, false, {});
    CHECK(second.info().states == 2);

    // Without the states nothing is taken.
    while (model->pool->drop_oldest_state(true)) {
    }
    Session fourth(model, sharing);
    fourth.append(tokens, {});
    CHECK(fourth.info().tokens_reused == 0);
    CHECK(fourth.digest() == plain.digest());
}

TEST_CASE("Session: recurrent layers: states of the prefix cache go first under a budget") {
    kernels::FloatEnvironment environment;
    const auto model = opened(4);
    TimelineOptions sharing;
    sharing.domain = 7;
    {
        Session gone(model, sharing);
        gone.append(tokens_for(*model, 800, 2), {});
    }
    CHECK(model->states->used_bytes() > 0); // held by the prefix cache
    Session session(model, {});
    session.append(tokens_for(*model, 800), {});
    CHECK(session.info().states == 4);
    session.decode(); // the next state takes the place of a checkpoint
    CHECK(session.info().states == 3);
    CHECK(model->states->used_bytes() <= 4 * model->states->bytes());
    CHECK(!model->pool->drop_oldest_state(true));
}

TEST_CASE("Session: recurrent layers: a fork costs reference counts, decoding no memory") {
    kernels::FloatEnvironment environment;
    struct Counting {
        std::atomic<size_t> taken{0};
    } counting;
    const Memory memory{&counting,
                        [](void *user, size_t size, size_t alignment) -> void * {
                            ++static_cast<Counting *>(user)->taken;
                            return std::aligned_alloc(alignment, (size + alignment - 1) /
                                                                     alignment * alignment);
                        },
                        [](void *, void *block, size_t, size_t) { std::free(block); }};
    const auto model = opened(64, memory);
    Session session(model, {});
    session.append(tokens_for(*model, 641), {});
    session.decode();
    const uint64_t bytes = model->states->used_bytes();
    const auto fork = session.fork();
    CHECK(model->states->used_bytes() == bytes);
    session.decode(); // the fork keeps the state of its last position, and the last page
    session.decode();
    const size_t before = counting.taken;
    for (size_t i = 0; i < 20; ++i) {
        session.decode();
    }
    CHECK(counting.taken == before);
    CHECK(model->states->used_bytes() == bytes + model->states->bytes());
}

TEST_CASE("Session: recurrent layers: what their states cannot do is refused") {
    kernels::FloatEnvironment environment;
    const auto model = open(kRecurrentModel);
    Session session(model, {});
    session.append(tokens_for(*model, 100), {});
    const Digest before = session.digest();
    check_error(Status::unsupported, "recurrent", [&] { session.evict(10, 20); });
    std::vector<uint16_t> numbers(size_t{model->config.kv_heads} * model->config.head_dim);
    check_error(Status::unsupported, "layer 0 is recurrent",
                [&] { session.copy_kv(0, 5, 6, numbers.data(), numbers.data()); });
    session.copy_kv(3, 5, 6, numbers.data(), numbers.data());
    CHECK(session.digest() == before);
}

TEST_CASE("Session: recurrent layers: sums of attention are those of a session never cut") {
    kernels::FloatEnvironment environment;
    const auto model = open(kRecurrentModel);
    const std::vector<uint32_t> tokens = tokens_for(*model, 400);
    Session calm(model, tracking()), cut(model, tracking());
    calm.append(tokens, {});
    cut.append(tokens_for(*model, 330), {});
    cut.rewind(200, false, {});
    cut.append(std::span(tokens).subspan(200), {});
    std::vector<uint64_t> one, other;
    calm.received(true, one);
    cut.received(true, other);
    CHECK(one == other);
}

TEST_CASE(
    "step: a session whose recurrent state a rewind cut off computes it first, or ends alone") {
    kernels::FloatEnvironment environment;
    const auto model = opened(64);
    const std::vector<uint32_t> tokens = tokens_for(*model, 500);
    Session rewound(model, {}), other(model, {}), calm(model, {});
    rewound.append(tokens, {});
    rewound.rewind(300, false, {});
    for (Session *session : {&other, &calm}) {
        session->append(std::span(tokens).first(300), {});
    }
    const std::vector<uint32_t> more = tokens_for(*model, 80, 9);
    std::vector<StepItem> items = {{&rewound, more, true}, {&other, more, true}};
    std::atomic<bool> cancelled{true};
    AppendOptions run;
    run.watch.cancel = &cancelled;
    run_step(items, run);
    for (StepItem &item : items) {
        CHECK(item.ended_call);
        CHECK(item.session->position() == 300);
        item.error = nullptr;
        item.ended_call = false;
    }
    CHECK(other.digest() == calm.digest());
    run_step(items, {});
    calm.append(more, {});
    const uint32_t token = calm.decode();
    for (const StepItem &item : items) {
        REQUIRE(item.error == nullptr);
        CHECK(item.token == token);
        CHECK(item.session->digest() == calm.digest());
    }
}
