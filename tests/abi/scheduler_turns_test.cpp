// Whose turn it is in a scheduler, counted in passes: no prompt keeps replies waiting, no session
// keeps others from their turns, and what nobody fetches stops its own session alone. Then how
// sessions and schedulers end.
#include "tests/abi/scheduled.h"

using namespace abi_test;

namespace {

// Passes between one token of a session and the next, at most.
uint64_t longest_wait(const Heard &heard) {
    uint64_t longest = 0;
    for (size_t i = 1; i < heard.passes.size(); ++i) {
        longest = std::max(longest, heard.passes[i] - heard.passes[i - 1]);
    }
    return longest;
}

} // namespace

TEST_CASE(
    "stasis_scheduler_next: a long prompt takes a slice of each pass, and every reply a token "
    "of each") {
    const Scheduler scheduler = make_scheduler(gemma(), limits(0, 16));
    std::vector<Session> replies;
    for (uint32_t i = 0; i < 5; ++i) {
        replies.push_back(session_of(gemma(), some_tokens(20, i)));
        submit(scheduler, replies.back(), {.tokens_max = 60});
    }
    const Session long_prompt = create(gemma()), short_prompt = create(gemma());
    submit(scheduler, long_prompt, {some_tokens(800), 5});
    AllHeard heard;
    uint64_t ended = 0, before = 0, passes = 0;
    while (ended < 7) {
        const Event event = next(scheduler);
        heard[event->session].hear(*event);
        ended += event->end;
        const stasis_scheduler_stats stats = stats_of(scheduler);
        if (stats.passes != passes) {
            CHECK(stats.prompt_positions - before <= 16 * (stats.passes - passes));
            before = stats.prompt_positions;
            passes = stats.passes;
        }
        if (heard[replies[0].get()].passes.size() == 3 && ended == 0 &&
            heard.count(short_prompt.get()) == 0) {
            heard[short_prompt.get()];
            submit(scheduler, short_prompt, {some_tokens(24, 5), 5});
        }
    }
    for (const Session &reply : replies) {
        CHECK(heard[reply.get()].passes.size() == 60);
        CHECK(longest_wait(heard[reply.get()]) == 1);
        CHECK(heard[reply.get()].passes.front() == 1);
    }
    // The short prompt, which came after the long one, did not wait for its 50 passes.
    CHECK(heard[short_prompt.get()].passes.front() < 12);
    CHECK(heard[long_prompt.get()].passes.front() > 50);
    CHECK(heard[long_prompt.get()].passes.front() < 60);
    CHECK(stats_of(scheduler).prompt_positions == 824);
}

TEST_CASE("stasis_scheduler_next: more sessions than a pass takes have their turns") {
    const Scheduler scheduler = make_scheduler(gemma(), limits(4, 16));
    std::vector<Session> sessions;
    for (uint32_t i = 0; i < 10; ++i) {
        sessions.push_back(session_of(gemma(), some_tokens(20, i)));
        submit(scheduler, sessions.back(), {.tokens_max = 12});
    }
    const AllHeard heard = hear_all(scheduler, 10);
    for (const Session &session : sessions) {
        CHECK(heard.at(session.get()).passes.size() == 12);
        CHECK(heard.at(session.get()).passes.front() <= 3);
        CHECK(longest_wait(heard.at(session.get())) <= 3); // 10 by 4, rounded up
    }
    CHECK(stats_of(scheduler).most_together == 4);
    CHECK(stats_of(scheduler).passes == 30);
    CHECK(stats_of(scheduler).tokens == 120);
}

TEST_CASE("stasis_scheduler_next: many prompts are begun in turns, the first ones first") {
    const Scheduler scheduler = make_scheduler(gemma(), limits(4, 32));
    std::vector<Session> sessions;
    for (uint32_t i = 0; i < 12; ++i) {
        sessions.push_back(create(gemma()));
        submit(scheduler, sessions.back(), {some_tokens(64, i), 2});
    }
    const AllHeard heard = hear_all(scheduler, 12);
    for (uint32_t i = 0; i < 12; ++i) {
        // At 32 positions a pass: each four take 8 passes, and then a token a pass.
        CHECK(heard.at(sessions[i].get()).passes.front() <= 8 * (i / 4 + 1) + 4);
        CHECK(heard.at(sessions[i].get()).status == STASIS_OK);
    }
}

TEST_CASE("stasis_scheduler_next: a session whose events nobody fetches stops, and goes on when "
          "somebody does") {
    const Session heard = session_of(gemma(), some_tokens(20)), twin = fork(heard.get());
    const Session unheard = session_of(gemma(), some_tokens(30, 2)), other = fork(unheard.get());
    const Scheduler scheduler = make_scheduler(gemma(), limits(0, 0, 3));
    submit(scheduler, unheard, {.tokens_max = 20});
    submit(scheduler, heard, {.tokens_max = 40});
    for (int i = 0; i < 40; ++i) {
        CHECK(next(scheduler, heard)->token == draw(twin.get()));
    }
    CHECK(next(scheduler, heard)->end == 1);
    CHECK(position(unheard.get()) == 33);
    CHECK(stats_of(scheduler).events == 3);
    for (int i = 0; i < 20; ++i) {
        CHECK(next(scheduler)->token == draw(other.get()));
    }
    CHECK(next(scheduler)->end == 1);
    CHECK(digest(unheard.get()) == digest(other.get()));
}

TEST_CASE(
    "stasis_scheduler_next: without time it computes nothing, and waits no longer than told") {
    const Scheduler scheduler = make_scheduler(gemma());
    CHECK(next(scheduler, nullptr, 0) == nullptr);
    CHECK(next(scheduler, nullptr, 20) == nullptr); // nobody is there
    const Session session = session_of(gemma(), some_tokens(20));
    submit(scheduler, session, {});
    CHECK(next(scheduler, nullptr, 0) == nullptr);
    CHECK(stats_of(scheduler).passes == 0);
    CHECK(next(scheduler, nullptr, 60000)->end == 0);
    stasis_scheduler_event *event = nullptr;
    const Session stranger = fork(session.get());
    CHECK(stasis_scheduler_next(scheduler.get(), stranger.get(), STASIS_FOREVER, &event, nullptr) ==
          STASIS_NOT_FOUND);
}

TEST_CASE("stasis_scheduler_cancel: before, during and after a prompt, and after the end") {
    const Session start = session_of(gemma(), some_tokens(70));
    const Task task{some_tokens(100, 3), 5};
    const auto run = [&](int steps, bool by_handle) { // events of a second session until then
        const Session session = fork(start.get()), other = session_of(gemma(), some_tokens(9));
        const Cancel cancel = make_cancel();
        Task own = task;
        own.cancel = cancel.get();
        const Scheduler scheduler = make_scheduler(gemma(), limits(0, 16, 100));
        submit(scheduler, other, {.tokens_max = 30});
        submit(scheduler, session, own);
        for (int i = 0; i < steps; ++i) {
            next(scheduler, other);
        }
        const uint64_t drawn = steps < 7 ? 0 : std::min(steps - 7, 5);
        CHECK(position(session.get()) == (steps < 7 ? 70 : 170 + drawn)); // all of it or nothing
        if (by_handle) {
            stasis_cancel_request(cancel.get());
        } else {
            REQUIRE(stasis_scheduler_cancel(scheduler.get(), session.get(), nullptr) == STASIS_OK);
        }
        const Heard heard = hear_all(scheduler, 2).at(session.get());
        CHECK(heard.passes.size() == drawn);
        CHECK(heard.count == drawn);
        CHECK(heard.begin == (steps < 7 ? 70 : 170));
        const bool ended = drawn == 5;
        CHECK(heard.status == (ended ? STASIS_OK : STASIS_CANCELLED));
        CHECK(heard.reason == (ended ? STASIS_STOP_LENGTH : STASIS_STOP_CANCELLED));
        const Session twin = fork(start.get());
        if (steps >= 7) {
            append(twin.get(), task.prompt);
            draw(twin.get(), drawn);
        }
        CHECK(digest(session.get()) == digest(twin.get()));
        CHECK(info_of(session).kv_bytes == info_of(twin).kv_bytes);
        draw(session.get());
        draw(twin.get());
        CHECK(digest(session.get()) == digest(twin.get()));
    };
    for (const bool by_handle : {false, true}) {
        for (const int steps : {0, 1, 2, 6, 7, 8, 11, 12, 15}) {
            CAPTURE(steps);
            run(steps, by_handle);
        }
    }
}

TEST_CASE("stasis_scheduler_close: sessions, schedulers and models end in any order") {
    const Task task{some_tokens(100, 3), 5};
    for (const int steps : {0, 1, 3, 8, 9}) { // before, in the prompt, between tokens
        CAPTURE(steps);
        for (const int order : {0, 1, 2, 3}) {
            CAPTURE(order);
            Model model = open_path(test_data("zoo/gemma3-text"));
            Session session = session_of(model.get(), some_tokens(20));
            Session other = session_of(model.get(), some_tokens(9));
            Scheduler scheduler = make_scheduler(model.get(), limits(0, 16, 100));
            submit(scheduler, other, {.tokens_max = 30});
            submit(scheduler, session, task);
            for (int i = 0; i < steps; ++i) {
                next(scheduler, other);
            }
            Event kept = steps >= 8 ? next(scheduler, session) : nullptr;
            if (order == 0) {
                scheduler.reset();
                const Session twin = session_of(gemma(), some_tokens(20));
                if (steps >= 8) {
                    append(twin.get(), task.prompt);
                    draw(twin.get(), static_cast<size_t>(steps - 7));
                }
                CHECK(digest(session.get()) == digest(twin.get()));
                draw(session.get()); // free for every call
            } else if (order == 1) {
                model.reset();
                CHECK(hear_all(scheduler, 2).at(session.get()).status == STASIS_OK);
            } else if (order == 2) {
                session.reset();
                const Session twin = session_of(gemma(), some_tokens(9));
                check_as_alone(
                    [&] {
                        Heard heard = hear_all(scheduler, 1).begin()->second;
                        const Session early = fork(twin.get());
                        Heard all;
                        for (int i = 0; i < steps; ++i) { // those that were fetched before
                            heard.events.insert(heard.events.begin() + i, PulledEvent{});
                        }
                        const Outcome expected = alone(early.get(), {.tokens_max = 30});
                        std::copy_n(expected.events.begin(), steps, heard.events.begin());
                        return heard;
                    }(),
                    other, twin, {.tokens_max = 30});
                model.reset();
            } else {
                stasis_scheduler_stop(scheduler.get());
                stasis_scheduler_event *event = nullptr;
                CHECK(stasis_scheduler_next(scheduler.get(), nullptr, 0, &event, nullptr) ==
                      STASIS_CANCELLED);
                CHECK(try_submit(scheduler, session, task) == STASIS_CANCELLED);
                CHECK(stasis_scheduler_cancel(scheduler.get(), session.get(), nullptr) ==
                      STASIS_CANCELLED);
                CHECK(stats_of(scheduler).sessions == 0);
                stasis_scheduler_stop(scheduler.get());
                draw(session.get());
                scheduler.reset();
                session.reset();
            }
            if (kept != nullptr) { // outlives all of them
                CHECK(kept->length == 0);
                CHECK(std::string(kept->message).empty());
            }
        }
    }
    stasis_scheduler_close(nullptr);
    stasis_scheduler_stop(nullptr);
    stasis_scheduler_event_free(nullptr);
}

TEST_CASE("stasis_scheduler_submit: what cannot be done is refused, and the session stays free") {
    const Scheduler scheduler = make_scheduler(gemma());
    const Session session = session_of(gemma(), some_tokens(20)), empty = create(gemma());
    const Session foreign = session_of(llama(), some_tokens(20)), small = create(gemma(), 10);
    stasis_error error;
    const auto refused = [&](stasis_status expected, const char *what, const Session &of,
                             const Task &task) {
        CAPTURE(what);
        CHECK(try_submit(scheduler, of, task, &error) == expected);
        CHECK_MESSAGE(contains(error, what), error.message);
        CHECK(stats_of(scheduler).sessions == 0);
    };
    refused(STASIS_INVALID_ARGUMENT, "of another model", foreign, {});
    refused(STASIS_NOT_FOUND, "no logits before the first position", empty, {});
    refused(STASIS_FULL, "capacity of 10", small, {some_tokens(11)});
    refused(STASIS_INVALID_ARGUMENT, "token 4294967295 at index 2", session, {{1, 2, UINT32_MAX}});
    refused(STASIS_UNSUPPORTED, "tokenizer", session, {.stop_strings = {"a"}});
    refused(STASIS_INVALID_ARGUMENT, "is empty", session, {.stop_strings = {""}});
    refused(STASIS_INVALID_ARGUMENT, "log-probabilities", session, {.log_probabilities = 1U << 30});
}

TEST_CASE("stasis_scheduler_submit: prompts and options that make no sense are refused") {
    const Scheduler scheduler = make_scheduler(gemma());
    const Session session = session_of(gemma(), some_tokens(20));
    stasis_error error;
    auto options = sized<stasis_generate_options>();
    options.callback = [](void *, const stasis_generated *) { return 0; };
    CHECK(stasis_scheduler_submit(scheduler.get(), session.get(), &options, nullptr, &error) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(contains(error, "callback"));
    auto prompt = sized<stasis_prompt>();
    const auto bad_prompt = [&](stasis_status expected, const char *what) {
        CHECK(stasis_scheduler_submit(scheduler.get(), session.get(), nullptr, &prompt, &error) ==
              expected);
        CHECK_MESSAGE(contains(error, what), error.message);
        prompt = sized<stasis_prompt>();
    };
    prompt.token_count = 1;
    bad_prompt(STASIS_INVALID_ARGUMENT, "prompt.tokens is NULL");
    prompt.role = "user";
    prompt.length = 1;
    bad_prompt(STASIS_INVALID_ARGUMENT, "prompt.text is NULL");
    prompt.text = "a";
    prompt.length = 1;
    bad_prompt(STASIS_INVALID_ARGUMENT, "no role");
    const stasis_token token = 1;
    prompt.role = "user";
    prompt.tokens = &token;
    prompt.token_count = 1;
    bad_prompt(STASIS_INVALID_ARGUMENT, "more than one");
    prompt.conversation = "{}";
    prompt.conversation_length = 2;
    prompt.role = "user";
    bad_prompt(STASIS_INVALID_ARGUMENT, "more than one");
    prompt.conversation_length = 1;
    bad_prompt(STASIS_INVALID_ARGUMENT, "prompt.conversation is NULL");
    prompt.conversation = "{}";
    prompt.conversation_length = 2;
    bad_prompt(STASIS_INVALID_ARGUMENT, "messages");
    prompt.role = "user";
    bad_prompt(STASIS_UNSUPPORTED, "tokenizer");
    prompt.reserved = 1;
    bad_prompt(STASIS_UNSUPPORTED, "reserved");
    prompt.struct_size = 3;
    bad_prompt(STASIS_INVALID_ARGUMENT, "struct_size");
    draw(session.get()); // as free as before

    stasis_scheduler *made = nullptr;
    const auto bad_options = [&](stasis_scheduler_options given, const char *what) {
        CHECK(stasis_scheduler_create(gemma(), &given, &made, &error) == STASIS_INVALID_ARGUMENT);
        CHECK_MESSAGE(contains(error, what), error.message);
        CHECK(made == nullptr);
    };
    bad_options(limits(1025, 0), "sessions_max");
    bad_options(limits(0, 1025), "slice");
    CHECK(stasis_scheduler_create(nullptr, nullptr, &made, nullptr) == STASIS_INVALID_ARGUMENT);
    CHECK(stasis_scheduler_create(gemma(), nullptr, nullptr, nullptr) == STASIS_INVALID_ARGUMENT);
    stasis_scheduler_event *event = nullptr;
    CHECK(stasis_scheduler_next(nullptr, nullptr, 0, &event, nullptr) == STASIS_INVALID_ARGUMENT);
    CHECK(stasis_scheduler_next(scheduler.get(), nullptr, 0, nullptr, nullptr) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(stasis_scheduler_submit(scheduler.get(), nullptr, nullptr, nullptr, nullptr) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(stasis_scheduler_cancel(scheduler.get(), session.get(), nullptr) == STASIS_NOT_FOUND);
    CHECK(stasis_scheduler_get_stats(scheduler.get(), nullptr, nullptr) == STASIS_INVALID_ARGUMENT);
}

TEST_CASE(
    "stasis_scheduler_next: a callback of a pass may call the scheduler, but not wait for it") {
    for (const bool stops : {false, true}) {
        const Session session = session_of(gemma(), some_tokens(20)), twin = fork(session.get());
        const Session other = fork(session.get()), third = fork(session.get());
        const Scheduler scheduler = make_scheduler(gemma());
        submit(scheduler, other, {.tokens_max = 4});
        int calls = 0;
        Acting acting{STASIS_TRACE_APPEND, [&] {
                          stasis_scheduler_event *event = nullptr;
                          CHECK(stasis_scheduler_next(scheduler.get(), nullptr, STASIS_FOREVER,
                                                      &event, nullptr) == STASIS_BUSY);
                          stats_of(scheduler);
                          CHECK(try_submit(scheduler, session, {}) == STASIS_BUSY);
                          if (calls++ == 0) {
                              submit(scheduler, third, {.tokens_max = 2});
                          } else if (stops) {
                              stasis_scheduler_stop(scheduler.get());
                          } else if (calls == 2) {
                              CHECK(stasis_scheduler_cancel(scheduler.get(), other.get(),
                                                            nullptr) == STASIS_OK);
                          }
                      }};
        acting.listen(session.get());
        submit(scheduler, session, {.tokens_max = 4});
        AllHeard heard;
        stasis_status status = STASIS_OK;
        while (status == STASIS_OK && stats_of(scheduler).sessions != 0) {
            stasis_scheduler_event *event = nullptr;
            status =
                stasis_scheduler_next(scheduler.get(), nullptr, STASIS_FOREVER, &event, nullptr);
            if (status == STASIS_OK) {
                heard[event->session].hear(*event);
                stasis_scheduler_event_free(event);
            }
        }
        CHECK(status == (stops ? STASIS_CANCELLED : STASIS_OK));
        if (!stops) {
            CHECK(heard[other.get()].status == STASIS_CANCELLED);
            CHECK(heard[other.get()].count == 2); // that of the pass which was running stays
            CHECK(heard[third.get()].count == 2);
        }
        REQUIRE(stasis_session_set_trace(session.get(), nullptr, nullptr) == STASIS_OK);
        draw(twin.get(), position(session.get()) - 20);
        CHECK(digest(session.get()) == digest(twin.get()));
        CHECK(position(session.get()) == (stops ? 22 : 24));
        draw(session.get());
    }
}
