// A scheduler gives each session the bits that it gets alone: tokens, texts, stops and digests,
// whatever else runs, and whatever happens to the others.
#include <random>

#include <sys/wait.h>
#include <unistd.h>

#include "tests/abi/scheduled.h"
#include "tests/sanitizers.h"

using namespace abi_test;

namespace {

Task random_task(std::mt19937 &random, bool text) {
    Task task;
    constexpr size_t kPrompts[] = {0, 1, 5, 63, 64, 65, 130, 300};
    task.prompt = some_tokens(kPrompts[random() % std::size(kPrompts)], random());
    task.tokens_max = 1 + random() % 30;
    task.log_probabilities = random() % 3 == 0 ? 1 + random() % 4 : 0;
    task.ignore_end = random() % 2 == 0;
    if (random() % 3 == 0) {
        task.stop_tokens = some_tokens(20, random());
    }
    if (text && random() % 2 == 0) {
        task.stop_strings = {"e", "no such text"};
    }
    return task;
}

void set_sampling(stasis_session *session, std::mt19937 &random) {
    auto sampling = sized<stasis_sampling>();
    sampling.seed = random();
    sampling.temperature = random() % 3 == 0 ? 0.0F : 1.5F;
    sampling.repetition_penalty = random() % 2 == 0 ? 1.2F : 0.0F;
    sampling.dry_multiplier = random() % 3 == 0 ? 0.8F : 0.0F;
    sampling.min_p = 0.01F;
    REQUIRE(stasis_session_set_sampling(session, &sampling, nullptr) == STASIS_OK);
}

// Sessions with tokens, settings and perhaps a drafter, and twins of them without the drafter.
struct Crowd {
    std::vector<Session> sessions, twins;
    std::vector<Task> tasks;

    Crowd(stasis_model *model, size_t count, bool text, std::mt19937 &random) {
        for (size_t i = 0; i < count; ++i) {
            const Session start = session_of(model, some_tokens(1 + random() % 70, random()));
            set_sampling(start.get(), random);
            sessions.push_back(fork(start.get()));
            twins.push_back(fork(start.get()));
            tasks.push_back(random_task(random, text));
            if (random() % 4 == 0) {
                auto draft = sized<stasis_draft_options>();
                REQUIRE(stasis_session_set_draft(sessions.back().get(), nullptr, &draft, nullptr) ==
                        STASIS_OK);
            }
        }
    }
};

} // namespace

TEST_CASE(
    "stasis_scheduler_next: every session has the tokens, texts, log-probabilities, stops and "
    "digest that it has alone") {
    const stasis_scheduler_options all[] = {limits(0, 0), limits(3, 16, 1), limits(5, 100, 2),
                                            limits(64, 1024)};
    std::mt19937 random(1);
    for (const char *name : {"zoo/gemma3-text", "recall-gemma3", "zoo/mistral-window",
                             "zoo/qwen3_5-dense", "zoo/lfm2", "zoo/qwen3-moe"}) {
        CAPTURE(name);
        const bool text = std::string(name) == "recall-gemma3";
        for (const stasis_scheduler_options &options : all) {
            stasis_model *const model = shared_model(name);
            const Crowd crowd(model, 9, text, random);
            const Scheduler scheduler = make_scheduler(model, options);
            for (size_t i = 0; i < 9; ++i) {
                submit(scheduler, crowd.sessions[i], crowd.tasks[i]);
            }
            const AllHeard heard = hear_all(scheduler, 9);
            for (size_t i = 0; i < 9; ++i) {
                CAPTURE(i);
                check_as_alone(heard.at(crowd.sessions[i].get()), crowd.sessions[i], crowd.twins[i],
                               crowd.tasks[i]);
            }
            CHECK(stats_of(scheduler).sessions == 0);
            CHECK(stats_of(scheduler).events == 0);
        }
    }
}

TEST_CASE("stasis_scheduler_submit: a turn is what append_message makes of it, again and again") {
    stasis_model *const model = shared_model("recall-gemma3");
    const Scheduler scheduler = make_scheduler(model, limits(0, 16));
    const Session session = create(model), twin = create(model), unheard = create(model);
    for (const char *text : {"Define a variable k equal to 5. What is k?", "What is k?"}) {
        auto prompt = sized<stasis_prompt>();
        prompt.role = "user";
        prompt.text = text;
        prompt.length = std::strlen(text);
        auto options = sized<stasis_generate_options>();
        options.tokens_max = 12;
        for (const Session *each : {&session, &unheard}) {
            if (each == &session || position(unheard.get()) == 0) {
                REQUIRE(stasis_scheduler_submit(scheduler.get(), each->get(), &options, &prompt,
                                                nullptr) == STASIS_OK);
            }
        }
        Heard heard;
        while (heard.status != STASIS_OK) {
            heard.hear(*next(scheduler, session));
        }
        REQUIRE(stasis_session_append_message(twin.get(), "user", text, prompt.length,
                                              STASIS_MESSAGE_REPLY, nullptr, nullptr) == STASIS_OK);
        const Outcome expected = told(twin.get(), options);
        CHECK((heard.events == expected.events));
        CHECK(digest(session.get()) == digest(twin.get()));
        uint8_t sources[2][300];
        size_t counts[2];
        for (int i = 0; i < 2; ++i) {
            REQUIRE(stasis_session_tokens((i == 0 ? session : twin).get(), 0, nullptr, sources[i],
                                          300, &counts[i], nullptr) == STASIS_OK);
        }
        CHECK(counts[0] == counts[1]);
        CHECK(std::memcmp(sources[0], sources[1], counts[0]) == 0);
    }
}

TEST_CASE("stasis_scheduler_next: constraints hold as they do alone, beside sessions without any") {
    stasis_model *const model = shared_model("recall-gemma3");
    const Scheduler scheduler = make_scheduler(model, limits(0, 16));
    std::mt19937 random(5);
    const Crowd crowd(model, 6, true, random);
    const std::string patterns[] = {"[0-9]{3,9}", "(yes|no)", "([a-z]+ ){2,20}[.]"};
    for (size_t i = 0; i < 3; ++i) {
        for (const Session *each : {&crowd.sessions[i], &crowd.twins[i]}) {
            REQUIRE(stasis_session_set_constraint(each->get(), STASIS_CONSTRAINT_REGEX,
                                                  patterns[i].data(), patterns[i].size(), nullptr,
                                                  nullptr) == STASIS_OK);
        }
    }
    std::vector<uint32_t> bits(8192, 0);
    bits[3] = 0xF00; // for the first token of one session, and no other
    auto info = sized<stasis_model_info>();
    REQUIRE(stasis_model_get_info(model, &info, nullptr) == STASIS_OK);
    for (const Session *each : {&crowd.sessions[4], &crowd.twins[4]}) {
        REQUIRE(stasis_session_set_allowed(each->get(), bits.data(), (info.vocabulary + 31) / 32,
                                           nullptr) == STASIS_OK);
    }
    for (size_t i = 0; i < 6; ++i) {
        submit(scheduler, crowd.sessions[i], crowd.tasks[i]);
    }
    const AllHeard heard = hear_all(scheduler, 6);
    CHECK(heard.at(crowd.sessions[4].get()).events[0].token / 32 == 3);
    for (size_t i = 0; i < 6; ++i) {
        CAPTURE(i);
        check_as_alone(heard.at(crowd.sessions[i].get()), crowd.sessions[i], crowd.twins[i],
                       crowd.tasks[i]);
    }
}

TEST_CASE("stasis_scheduler_next: where a constraint leaves no token, the reply stops") {
    stasis_model *const model = shared_model("recall-gemma3");
    const Session session = session_of(model, some_tokens(9)), twin = fork(session.get());
    auto info = sized<stasis_model_info>();
    REQUIRE(stasis_model_get_info(model, &info, nullptr) == STASIS_OK);
    const std::vector<float> never(info.end_token_count, -std::numeric_limits<float>::infinity());
    auto sampling = sized<stasis_sampling>();
    sampling.bias_tokens = info.end_tokens;
    sampling.bias = never.data();
    sampling.bias_count = info.end_token_count;
    for (const Session *each : {&session, &twin}) {
        REQUIRE(stasis_session_set_sampling(each->get(), &sampling, nullptr) == STASIS_OK);
        REQUIRE(stasis_session_set_constraint(each->get(), STASIS_CONSTRAINT_REGEX, "(yes|no)", 8,
                                              nullptr, nullptr) == STASIS_OK);
    }
    const Scheduler scheduler = make_scheduler(model);
    submit(scheduler, session, {});
    const Heard heard = hear_all(scheduler, 1).at(session.get());
    CHECK(heard.reason == STASIS_STOP_NO_TOKEN);
    CHECK(heard.count > 0);
    check_as_alone(heard, session, twin, {});
}

TEST_CASE(
    "stasis_scheduler_submit: a system text waits for the user's turn, and is not lost with a "
    "turn that was cancelled") {
    stasis_model *const model = shared_model("recall-gemma3");
    const Scheduler scheduler = make_scheduler(model, limits(0, 16));
    const Session session = create(model);
    REQUIRE(stasis_session_append_message(session.get(), "system", "Be brief.", 9, 0, nullptr,
                                          nullptr) == STASIS_OK);
    const uint64_t pending = info_of(session).pending_bytes;
    const Session twin = fork(session.get());
    auto prompt = sized<stasis_prompt>();
    prompt.role = "user";
    prompt.text = "Tell me about the sea, and about the land, and what lies between them.";
    prompt.length = std::strlen(prompt.text);
    for (const bool cancels : {true, false}) {
        REQUIRE(stasis_scheduler_submit(scheduler.get(), session.get(), nullptr, &prompt,
                                        nullptr) == STASIS_OK);
        if (cancels) {
            REQUIRE(stasis_scheduler_cancel(scheduler.get(), session.get(), nullptr) == STASIS_OK);
            CHECK(next(scheduler)->end == 1);
            CHECK(position(session.get()) == 0);
            CHECK(info_of(session).pending_bytes == pending);
        }
    }
    CHECK(next(scheduler)->end == 0);
    CHECK(info_of(session).pending_bytes == 0);
    REQUIRE(stasis_session_append_message(twin.get(), "user", prompt.text, prompt.length,
                                          STASIS_MESSAGE_REPLY, nullptr, nullptr) == STASIS_OK);
    draw(twin.get());
    CHECK(digest(session.get()) == digest(twin.get()));
}

TEST_CASE("stasis_scheduler_next: prompts that begin alike compute their pages once") {
    const Tokens common = some_tokens(300);
    const Scheduler scheduler = make_scheduler(gemma(), limits(0, 64));
    std::vector<Session> sessions;
    std::vector<Task> tasks;
    for (uint32_t i = 0; i < 6; ++i) {
        sessions.push_back(create(gemma(), 0, 0, 4711)); // a domain of its own
        tasks.push_back({joined(common, some_tokens(10 + i, i))});
        submit(scheduler, sessions.back(), tasks.back());
    }
    const AllHeard heard = hear_all(scheduler, 6);
    uint64_t reused = 0;
    for (size_t i = 0; i < 6; ++i) {
        reused += info_of(sessions[i]).tokens_reused;
        const Session twin = create(gemma());
        check_as_alone(heard.at(sessions[i].get()), sessions[i], twin, tasks[i]);
    }
    CHECK(reused == 5U * 256);
}

TEST_CASE("stasis_scheduler_submit: while it is in a scheduler a session can be read, and not "
          "changed") {
    const Session session = session_of(gemma(), some_tokens(20));
    const Session twin = fork(session.get());
    const Scheduler scheduler = make_scheduler(gemma()), second = make_scheduler(gemma());
    stasis_session *const own = session.get();
    submit(scheduler, session, {.tokens_max = 3});
    const auto check_busy = [&] {
        stasis_token token = 1;
        stasis_generation *generation = nullptr;
        stasis_error error;
        CHECK(stasis_session_append(own, &token, 1, nullptr, &error) == STASIS_BUSY);
        CHECK_MESSAGE(contains(error, "scheduler"), error.message);
        CHECK(stasis_session_append_message(own, "user", "a", 1, 0, nullptr, nullptr) ==
              STASIS_BUSY);
        CHECK(stasis_session_rewind(own, 3, 0, nullptr, nullptr) == STASIS_BUSY);
        CHECK(stasis_session_evict(own, 3, 5, nullptr) == STASIS_BUSY);
        CHECK(stasis_session_decode(own, &token, nullptr) == STASIS_BUSY);
        CHECK(stasis_session_generate(own, nullptr, nullptr, nullptr) == STASIS_BUSY);
        CHECK(stasis_session_set_sampling(own, nullptr, nullptr) == STASIS_BUSY);
        CHECK(stasis_session_set_draft(own, nullptr, nullptr, nullptr) == STASIS_BUSY);
        CHECK(stasis_generation_begin(own, nullptr, &generation, nullptr) == STASIS_BUSY);
        auto item = sized<stasis_step_item>();
        item.session = own;
        item.flags = STASIS_STEP_SAMPLE;
        CHECK(stasis_sessions_step(&item, sizeof item, 1, nullptr, 0, nullptr, nullptr) ==
              STASIS_BUSY);
        CHECK(try_submit(scheduler, session, {}) == STASIS_BUSY);
        CHECK(try_submit(second, session, {}) == STASIS_BUSY);
    };
    check_busy();
    for (int i = 0; i < 3; ++i) {
        CHECK(digest(own) == digest(twin.get()));
        const Session child = fork(own); // not in the scheduler
        draw(child.get());
        CHECK(next(scheduler)->token == draw(twin.get()));
        CHECK(digest(child.get()) == digest(twin.get()));
        CHECK(same_bits(logits_of(session), logits_of(twin)));
        check_busy();
    }
    CHECK(next(scheduler)->end == 1);
    CHECK(draw(own) == draw(twin.get())); // free again
    submit(second, session, {.tokens_max = 1});
    CHECK(next(second)->token == draw(twin.get()));

    // A generation that is not over keeps a session out of a scheduler.
    const Generation generation = begin(twin.get(), on_and_on(3));
    CHECK(try_submit(second, twin, {}) == STASIS_BUSY);
}

TEST_CASE("stasis_scheduler_next: an error of one session ends that session, and no other") {
    const Scheduler scheduler = make_scheduler(gemma(), limits(0, 16));
    const Session well = session_of(gemma(), some_tokens(30)), twin = fork(well.get());
    const Session barred = fork(well.get()), full = create(gemma(), 40);
    auto sampling = sized<stasis_sampling>();
    const Tokens every = [] {
        Tokens tokens;
        auto info = sized<stasis_model_info>();
        REQUIRE(stasis_model_get_info(gemma(), &info, nullptr) == STASIS_OK);
        for (stasis_token token = 0; token < info.vocabulary; ++token) {
            tokens.push_back(token);
        }
        return tokens;
    }();
    const std::vector<float> never(every.size(), -std::numeric_limits<float>::infinity());
    sampling.bias_tokens = every.data();
    sampling.bias = never.data();
    sampling.bias_count = static_cast<uint32_t>(every.size());
    REQUIRE(stasis_session_set_sampling(barred.get(), &sampling, nullptr) == STASIS_OK);
    const Task task{some_tokens(50, 3)};
    submit(scheduler, well, task);
    submit(scheduler, barred, {some_tokens(20, 4)});
    submit(scheduler, full, {some_tokens(35), 0});
    const AllHeard heard = hear_all(scheduler, 3);
    check_as_alone(heard.at(well.get()), well, twin, task);
    const Heard &refused = heard.at(barred.get());
    CHECK(refused.status == STASIS_INVALID_ARGUMENT);
    CHECK_MESSAGE(refused.message.find("bias") != std::string::npos, refused.message);
    CHECK(refused.count == 0);
    CHECK(position(barred.get()) == 50); // the prompt is complete
    CHECK(heard.at(full.get()).status == STASIS_OK);
    CHECK(heard.at(full.get()).reason == STASIS_STOP_LENGTH);
    CHECK(position(full.get()) == 40);
}

TEST_CASE("stasis_scheduler_next: without KV pages a session ends as it was, and goes on when "
          "there are some") {
    auto options = sized<stasis_model_options>();
    options.kv_budget_bytes = 600000;
    const Model model = open_path(test_data("zoo/llama-gqa-untied"), &options);
    const uint64_t page = [&] {
        const Session one = session_of(model.get(), some_tokens(1));
        return info_of(one).kv_bytes;
    }();
    const uint64_t pages = options.kv_budget_bytes / page;
    Session large = session_of(model.get(), some_tokens((pages - 2) * 64));
    const Scheduler scheduler = make_scheduler(model.get(), limits(0, 64));
    const Session session = create(model.get());
    const Task task{some_tokens(64 * 3), 5};
    submit(scheduler, session, task);
    const Event event = next(scheduler);
    CHECK(event->end == 1);
    CHECK(event->status == STASIS_POOL_EXHAUSTED);
    CHECK(event->begin == 0);
    CHECK(position(session.get()) == 0);
    large.reset();
    submit(scheduler, session, task);
    const Session twin = create(llama());
    check_as_alone(hear_all(scheduler, 1).at(session.get()), session, twin, task);
}

#ifndef STASIS_THREAD_SANITIZER // which cannot follow a process that forks while it has threads
TEST_CASE("stasis_scheduler_next: a child of fork() goes on with its own copy") {
    const Session session = session_of(gemma(), some_tokens(20)), twin = fork(session.get());
    const Scheduler scheduler = make_scheduler(gemma(), limits(0, 16));
    const Task task{some_tokens(100, 3)};
    submit(scheduler, session, task);
    CHECK(next(scheduler)->end == 0);
    alone(twin.get(), task);
    const Digest expected = digest(twin.get());
    const auto goes_on = [&] {
        while (next(scheduler)->end == 0) {
        }
        return digest(session.get()) == expected;
    };
    const pid_t child = ::fork();
    if (child == 0) {
        alarm(60);
        _exit(goes_on() ? 0 : 1);
    }
    CHECK(goes_on());
    int status = -1;
    waitpid(child, &status, 0);
    CHECK(status == 0);
}
#endif
