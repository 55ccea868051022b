// Promises of a session apart from the bits: all or nothing, limits, pages, generation, scores.
#include <atomic>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <functional>

#include "tests/runtime/models.h"

using namespace stasis;
using namespace stasis::test;

namespace {

// Runs `call`, which must throw Error of that status and leave the session's digest as it was.
void check_refused(Session &session, Status status, const char *words,
                   const std::function<void()> &call) {
    const Digest before = session.digest();
    const uint64_t position = session.position();
    try {
        call();
        FAIL("not refused: " << words);
    } catch (const Error &error) {
        CHECK(error.status() == status);
        CHECK_MESSAGE(std::string(error.what()).find(words) != std::string::npos, error.what());
    }
    CHECK(session.position() == position);
    CHECK(session.digest() == before);
}

std::shared_ptr<Model> open_with(const std::string &name, const ModelOptions &options) {
    return open_model(directory(name), options);
}

} // namespace

TEST_CASE("Session: insight 20: append is all or nothing") {
    kernels::FloatEnvironment environment;
    const auto model = open("zoo/gemma3-text");
    TimelineOptions options;
    options.capacity = 100;
    Session session(model, options);
    session.append(tokens_for(*model, 70), {});
    std::vector<uint32_t> tokens = tokens_for(*model, 30);
    tokens[29] = model->config.vocabulary;
    check_refused(session, Status::invalid_argument, "token 192 at index 29",
                  [&] { session.append(tokens, {}); });
    check_refused(session, Status::full, "capacity of 100",
                  [&] { session.append(tokens_for(*model, 31), {}); });
    std::atomic<bool> cancelled{true};
    AppendOptions run;
    run.watch.cancel = &cancelled;
    check_refused(session, Status::cancelled, "cancelled",
                  [&] { session.append(tokens_for(*model, 30), run); });
    run = {};
    run.chunk = 7;
    run.watch.progress = [](void *, uint64_t done, uint64_t) { return done < 21; };
    check_refused(session, Status::stopped, "21 of 30",
                  [&] { session.append(tokens_for(*model, 30), run); });
    run = {};
    run.logits = [](void *, uint64_t position, const float *, size_t) { return position < 80; };
    check_refused(session, Status::stopped, "position 80",
                  [&] { session.append(tokens_for(*model, 30), run); });
    // No trace of all this is left: the run continues like one that was never disturbed.
    session.append(tokens_for(*model, 30), {});
    Session calm(model, options);
    calm.append(tokens_for(*model, 70), {});
    calm.append(tokens_for(*model, 30), {});
    CHECK(session.digest() == calm.digest());
}

TEST_CASE("Session: insight 57: positions beyond the model's maximum are refused before anything "
          "is touched") {
    kernels::FloatEnvironment environment;
    const auto model = open("zoo/llama-gqa-untied");
    TimelineOptions options;
    options.capacity = model->config.context + 1;
    CHECK_THROWS_AS(Session(model, options), Error);
    options.capacity = 10;
    Session session(model, options);
    session.append(tokens_for(*model, 10), {});
    check_refused(session, Status::full, "capacity of 10", [&] { session.decode(); });
}

TEST_CASE("Session: a non-finite value fails the append, named, and leaves the session whole") {
    kernels::FloatEnvironment environment;
    const auto model = open_with("zoo/llama-gqa-untied", {});
    Session session(model, {});
    session.append(tokens_for(*model, 40), {});
    const std::vector<uint32_t> next = tokens_for(*model, 50, 3);
    Session calm(model, {});
    calm.append(tokens_for(*model, 40), {});
    calm.append(next, {});
    const Digest before = session.digest();

    const LayerWeights honest = model->weights.layers[1];
    std::vector<float> huge(model->config.hidden, 3e38F);
    model->weights.layers[1].attention_norm = huge.data();
    try {
        session.append(next, {});
        FAIL("an overflow went unnoticed");
    } catch (const Error &error) {
        CHECK(error.status() == Status::nonfinite);
        CHECK_MESSAGE(std::string(error.what()).find("layer 1 at position 40") != std::string::npos,
                      error.what());
    }
    model->weights.layers[1] = honest;
    CHECK(session.digest() == before);
    session.append(next, {}); // the slots that held infinities are clean again
    CHECK(session.digest() == calm.digest());
}

namespace {

// Bulk memory that fails from the k-th request on.
struct Failing {
    std::atomic<long> left{LONG_MAX};

    static void *take(void *user, size_t size_bytes, size_t alignment) {
        return static_cast<Failing *>(user)->left.fetch_sub(1) > 0
                   ? std::aligned_alloc(alignment,
                                        (size_bytes + alignment - 1) / alignment * alignment)
                   : nullptr;
    }
    static void give_back(void *, void *memory, size_t, size_t) { std::free(memory); }
};

} // namespace

TEST_CASE("Session: an append that runs out of memory beside a fork leaves both as they were") {
    kernels::FloatEnvironment environment;
    for (const char *name : {"zoo/llama-gqa-untied", "zoo/gemma3-text"}) {
        Failing failing; // outlives the model
        ModelOptions options;
        options.memory = {&failing, Failing::take, Failing::give_back};
        const auto model = open_with(name, options);
        for (const size_t start : {32UL, 64UL, 96UL, 100UL}) {
            TimelineOptions none;
            none.window_retain = 0;
            Session parent(model, none);
            parent.append(tokens_for(*model, start), {});
            const auto fork = parent.fork();
            const Digest before = parent.digest();
            AppendOptions run;
            run.chunk = 32;
            bool done = false;
            for (long k = 0; !done; ++k) {
                const auto own = parent.fork();
                Session &session = *own;
                failing.left = k;
                try {
                    session.append(tokens_for(*model, 200, 9), run);
                    done = true;
                } catch (const Error &error) {
                    CHECK(error.status() == Status::no_memory);
                    failing.left = LONG_MAX;
                    REQUIRE(session.position() == start);
                    REQUIRE(session.digest() == before);
                }
                failing.left = LONG_MAX;
                REQUIRE(fork->digest() == before);
            }
        }
    }
}

TEST_CASE("Session: a non-finite hidden state fails the append wherever the tokens are cut") {
    kernels::FloatEnvironment environment;
    const auto model = open_with("zoo/llama-gqa-untied", {});
    const std::vector<uint32_t> tokens = tokens_for(*model, 40);
    std::vector<float> norm(model->weights.final_norm,
                            model->weights.final_norm + model->config.hidden);
    // So large that some positions overflow and others do not.
    for (const float weight : {1e37F, 1e38F, 2e38F, 3e38F}) {
        norm[0] = weight;
        model->weights.final_norm = norm.data();
        std::vector<bool> failed;
        for (const size_t chunk : {1U, 7U, 64U}) {
            Session session(model, {});
            AppendOptions run;
            run.chunk = chunk;
            try {
                session.append(tokens, run);
                failed.push_back(false);
            } catch (const Error &error) {
                failed.push_back(true);
                CHECK(error.status() == Status::nonfinite);
                CHECK(session.position() == 0);
            }
        }
        CHECK(failed[0] == failed[1]);
        CHECK(failed[0] == failed[2]);
    }
}

TEST_CASE("Session: the KV budget is kept, and freeing sessions gives pages back") {
    kernels::FloatEnvironment environment;
    ModelOptions options;
    const auto probe = open("zoo/gemma3-text");
    const uint64_t global = probe->pool->shape(0).bytes(), local = probe->pool->shape(1).bytes();
    options.kv_budget_bytes = 3 * (global + local);
    const auto model = open_with("zoo/gemma3-text", options);
    auto first = std::make_unique<Session>(model, TimelineOptions());
    first->append(tokens_for(*model, 100), {}); // the first local page is released again
    CHECK(model->pool->used_bytes() == 2 * global + local);
    Session second(model, {});
    second.append(tokens_for(*model, 64), {});
    check_refused(second, Status::pool_exhausted, "KV pool exhausted",
                  [&] { second.append(tokens_for(*model, 1), {}); });
    first.reset();
    CHECK(model->pool->used_bytes() == global + local);
    second.append(tokens_for(*model, 1), {});
    CHECK(model->pool->used_bytes() == 2 * (global + local));
}

TEST_CASE("Session: insight 11: a fork copies no page until one side writes") {
    kernels::FloatEnvironment environment;
    const auto model = open_with("zoo/llama-gqa-untied", {});
    Session parent(model, {});
    parent.append(tokens_for(*model, 200), {});
    const uint64_t used = model->pool->used_bytes(), page = model->pool->shape(0).bytes();
    std::vector<std::unique_ptr<Session>> children;
    for (int i = 0; i < 10; ++i) {
        children.push_back(parent.fork());
    }
    CHECK(model->pool->used_bytes() == used);
    CHECK(model->held_bytes == 11 * used);
    CHECK(parent.info().pages_shared == 4);
    const uint32_t token = 1;
    children[0]->append({&token, 1}, {});
    CHECK(model->pool->used_bytes() == used + page); // its copy of the last page
    CHECK(children[0]->info().pages_own == 1);
    children.clear();
    CHECK(model->pool->used_bytes() == used);
    CHECK(parent.info().pages_shared == 0);
    CHECK(parent.info().pages_own == 4);
}

TEST_CASE(
    "Session: the last page goes by the digest that it was exported with as long as that is true") {
    kernels::FloatEnvironment environment;
    const auto model = open_with("zoo/llama-gqa-untied", {});
    Session session(model, {});
    const auto append = [&](size_t count) { session.append(tokens_for(*model, count), {}); };
    const auto last_page = [](Session &of) { return export_state(of).pages[0].back(); };
    append(70);
    const Page first = last_page(session);
    CHECK(first.earlier_valid == 0);
    append(4);
    session.digest(); // is not an export
    append(6);
    const auto fork = session.fork();
    const Page grown = last_page(session);
    CHECK(grown.earlier_valid == 6);
    CHECK(grown.earlier == first.digest);
    append(100); // the page becomes full
    CHECK(export_state(session).pages[0][1].earlier == grown.digest);
    session.rewind(75, false, {}); // some of those sixteen are written anew
    append(10);
    CHECK(last_page(session).earlier_valid == 0);
    CHECK(last_page(session).earlier_valid == 21);
    CHECK(last_page(*fork).earlier == first.digest);
}

TEST_CASE("Session: insight 29: local layers release what fell out of window and retain") {
    kernels::FloatEnvironment environment;
    const auto model = open_with("zoo/gemma3-text", {}); // window 16
    TimelineOptions options;
    options.window_retain = 0;
    Session session(model, options);
    session.append(tokens_for(*model, 400), {});
    const SessionInfo info = session.info();
    CHECK(info.window == 16);
    CHECK(info.window_begin == 384); // (400 - 16) rounded down to a page
    CHECK(info.rewind_floor == 400); // 384 + 16
    const uint64_t global = model->pool->shape(0).bytes(), local = model->pool->shape(1).bytes();
    CHECK(model->pool->used_bytes() == 7 * global + local);
    std::vector<uint16_t> kv(2 * 16 * model->config.kv_heads * model->config.head_dim);
    CHECK_THROWS_AS(session.copy_kv(0, 370, 386, kv.data(), kv.data()), Error);
    session.copy_kv(5, 370, 386, kv.data(), kv.data()); // layer 5 is global
    options.window_retain = 400;
    Session keeps(model, options);
    keeps.append(tokens_for(*model, 400), {});
    CHECK(keeps.info().rewind_floor == 0);
    CHECK(keeps.digest() == session.digest()); // what is resident does not matter
}

TEST_CASE("Session: insight 29: where every layer has a window, a session's memory does not grow") {
    kernels::FloatEnvironment environment;
    const auto model = open_with("zoo/mistral-window", {}); // window 20
    REQUIRE(model->groups.size() == 1);
    TimelineOptions options;
    options.window_retain = 0;
    Session session(model, options);
    const std::vector<uint32_t> tokens = tokens_for(*model, 400);
    const uint64_t page = model->pool->shape(0).bytes();
    for (size_t i = 0; i < tokens.size(); i += 10) {
        session.append(std::span(tokens).subspan(i, 10), {});
        CHECK(model->pool->used_bytes() <= 2 * page);
    }
    const SessionInfo info = session.info();
    CHECK(info.window == 20);
    CHECK(info.window_begin == 320); // (400 - 20) rounded down to a page
    CHECK(info.rewind_floor == 340);
    CHECK_THROWS_AS(session.rewind(339, false, {}), Error);
    const auto child = session.fork();
    child->rewind(340, false, {});
    Session fresh(model, {});
    fresh.append(std::span(tokens).first(340), {});
    CHECK(child->digest() == fresh.digest());
    CHECK(same_bits(logits_of(*child), logits_of(fresh)));
    const State state = export_state(session);
    CHECK(state.pages[0][4].data == nullptr);
    CHECK(state.pages[0][5].data != nullptr);
}

TEST_CASE(
    "Session::score: score gives the probabilities that decoding would see, and changes nothing") {
    kernels::FloatEnvironment environment;
    const auto model = open("recall-llama");
    const std::vector<uint32_t> tokens = tokens_for(*model, 60), next = tokens_for(*model, 20, 4);
    Session session(model, {});
    session.append(tokens, {});
    const Digest before = session.digest();
    const std::vector<double> scores = session.score(next, {});
    CHECK(session.digest() == before);
    REQUIRE(scores.size() == next.size());
    Session steps(model, {});
    steps.append(tokens, {});
    for (size_t i = 0; i < next.size(); ++i) {
        const std::vector<float> row = logits_of(steps);
        CHECK(scores[i] == double{row[next[i]]} - log_sum_exp(row));
        double sum = 0;
        for (float logit : row) {
            sum += std::exp(double{logit} - log_sum_exp(row));
        }
        CHECK(sum == doctest::Approx(1.0));
        steps.append({&next[i], 1}, {});
    }
}

TEST_CASE("Session: golden: nll of the recall models' conversations") {
    kernels::FloatEnvironment environment;
    for (const char *name : {"recall-gemma3", "recall-llama"}) {
        const Golden values = golden(name);
        Session session(open(name), {});
        session.append(std::span(values.ids).first(1), {});
        const std::vector<double> scores = session.score(std::span(values.ids).subspan(1), {});
        double largest = 0;
        for (size_t i = 0; i < scores.size(); ++i) {
            largest = std::max(largest, std::fabs(-scores[i] - double{values.nll[i]}));
        }
        MESSAGE(std::string(name) << ": largest difference of a token's nll " << largest);
        CHECK(largest < 5 * values.max); // two logits and their sum's share of the noise
    }
}

TEST_CASE("Session::generate: generation stops where it is told to") {
    kernels::FloatEnvironment environment;
    const auto model = open("recall-gemma3");
    Session start(model, {});
    start.append_message("user", "Let's start by defining a variable k equal to 5. What is k?",
                         true, {});
    struct Sink {
        std::string text;
        size_t events = 0, stop_after = SIZE_MAX;
    };
    const auto run = [&](GenerateOptions options, Sink &sink, Session &session) {
        options.callback_user = &sink;
        options.callback = [](void *user, const Generated &generated) {
            Sink &into = *static_cast<Sink *>(user);
            into.text += generated.text;
            return ++into.events < into.stop_after;
        };
        GenerateResult result;
        session.generate(options, result);
        CHECK(result.begin + result.count == session.position());
        return result;
    };
    Sink all, cut, string, stopped, full;
    GenerateOptions options;
    auto session = start.fork();
    CHECK(run(options, all, *session).reason == StopReason::end_token);
    CHECK(all.text == "k is 5.");
    options.tokens_max = 2;
    session = start.fork();
    CHECK(run(options, cut, *session).reason == StopReason::length);
    CHECK(cut.text == "k is");
    options.tokens_max = 0;
    options.stop_strings = {"s 5"};
    session = start.fork();
    CHECK(run(options, string, *session).reason == StopReason::stop_string);
    CHECK(string.text == "k i");
    options.stop_strings.clear();
    stopped.stop_after = 3;
    session = start.fork();
    const GenerateResult after = run(options, stopped, *session);
    CHECK(after.reason == StopReason::callback);
    CHECK(after.count == 3); // delivered tokens stay
    TimelineOptions small;
    small.capacity = start.position() + 4;
    session = restore_session(model, export_state(start), &small);
    options.ignore_end = true;
    CHECK(run(options, full, *session).reason == StopReason::length);
    CHECK(session->position() == small.capacity);
}

TEST_CASE("Session: logits are asked for before the first position, and after a rewind to it") {
    kernels::FloatEnvironment environment;
    Session session(open("zoo/gemma3-text"), {});
    const auto refused = [&](const std::function<void()> &call) {
        try {
            call();
            return false;
        } catch (const Error &error) {
            return error.status() == Status::not_found;
        }
    };
    for (int round = 0; round < 2; ++round) {
        CHECK(refused([&] { logits_of(session); }));
        CHECK(refused([&] { session.top(1); }));
        CHECK(refused([&] { session.sample(); }));
        CHECK(refused([&] { session.decode(); }));
        session.append(tokens_for(*session.model(), 5), {});
        CHECK(logits_of(session).size() == session.model()->config.vocabulary);
        session.rewind(0, false, {});
    }
}
