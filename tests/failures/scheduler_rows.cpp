// Failing calls on schedulers: a failure of a pass, or of one session of it, loses nothing.
#include "tests/failures/memory.h"
#include "tests/failures/trial.h"

namespace failures {

using namespace abi_test;

namespace {

using Scheduler = std::unique_ptr<stasis_scheduler, Releaser<stasis_scheduler_close>>;

constexpr size_t kSessions = 3;

// Sessions with prompts of several lengths, and ten tokens to draw.
struct Scheduling {
    Scheduler scheduler;
    Session sessions[kSessions];
    uint64_t begins[kSessions], drawn[kSessions];
    Tokens told[kSessions];
    bool in[kSessions] = {};

    explicit Scheduling(stasis_model *model, uint64_t length) {
        auto options = sized<stasis_scheduler_options>();
        options.slice = 32;
        stasis_scheduler *made = nullptr;
        REQUIRE(stasis_scheduler_create(model, &options, &made, nullptr) == STASIS_OK);
        scheduler.reset(made);
        for (size_t i = 0; i < kSessions; ++i) {
            sessions[i] = session_of(model, some_tokens(length, static_cast<uint32_t>(i)));
            begins[i] = length;
            drawn[i] = 0;
        }
    }

    stasis_status submit(size_t i, stasis_error *error) {
        static const Tokens prompts = some_tokens(40, 7);
        auto prompt = sized<stasis_prompt>();
        prompt.tokens = prompts.data();
        prompt.token_count = drawn[i] == 0 && position_of(i) == begins[i] ? 20 * i : 0;
        auto options = sized<stasis_generate_options>();
        options.flags = STASIS_GENERATE_IGNORE_END;
        options.tokens_max = 10 - drawn[i];
        options.log_probability_count = 2;
        const stasis_status status =
            stasis_scheduler_submit(scheduler.get(), sessions[i].get(), &options, &prompt, error);
        in[i] = status == STASIS_OK;
        return status;
    }

    uint64_t position_of(size_t i) const {
        const Quiet quiet;
        return position(sessions[i].get());
    }

    // Until all have drawn their tokens. A session whose end says that it failed is submitted again
    // by the next call.
    stasis_status run(stasis_error *error) {
        for (size_t i = 0; i < kSessions; ++i) {
            const stasis_status status = in[i] || drawn[i] == 10 ? STASIS_OK : submit(i, error);
            if (status != STASIS_OK) {
                return status;
            }
        }
        while (in[0] || in[1] || in[2]) {
            stasis_scheduler_event *got = nullptr;
            const stasis_status status =
                stasis_scheduler_next(scheduler.get(), nullptr, STASIS_FOREVER, &got, error);
            if (status != STASIS_OK) {
                return status;
            }
            const Quiet quiet;
            const std::unique_ptr<stasis_scheduler_event, Releaser<stasis_scheduler_event_free>>
                event(got);
            size_t i = 0;
            while (sessions[i].get() != event->session) {
                ++i;
            }
            if (event->end == 0) {
                told[i].push_back(event->token);
                told[i].push_back(event->best_tokens[1]);
                ++drawn[i];
                continue;
            }
            in[i] = false;
            if (event->status != STASIS_OK) {
                error->status = event->status;
                std::snprintf(error->message, sizeof error->message, "%s", event->message);
                return event->status;
            }
        }
        return STASIS_OK;
    }
};

// What its log gives, if it can be read: its prompt may have begun.
void check_whole(stasis_model *model, const stasis_session *session) {
    auto info = sized<stasis_session_info>();
    if (stasis_session_get_info(session, &info, nullptr) != STASIS_OK) {
        return;
    }
    Tokens tokens(info.position);
    size_t count = 0;
    REQUIRE(stasis_session_tokens(session, 0, tokens.data(), nullptr, tokens.size(), &count,
                                  nullptr) == STASIS_OK);
    CHECK(digest(session) == digest(session_of(model, tokens).get()));
}

Row running(const char *detail, Needs needs, const char *name, uint64_t length) {
    return {"stasis_scheduler_next", detail, needs, name, [=](stasis_model *model) {
                const auto all = std::make_shared<Scheduling>(model, length);
                return Trial{[=](stasis_error *error) { return all->run(error); },
                             [=] {
                                 for (const Session &session : all->sessions) {
                                     check_whole(model, session.get());
                                 }
                             },
                             [=] {
                                 std::string outcome;
                                 for (size_t i = 0; i < kSessions; ++i) {
                                     outcome += hex(all->told[i].data(),
                                                    all->told[i].size() * sizeof(stasis_token)) +
                                                outcome_of(all->sessions[i].get());
                                 }
                                 return outcome;
                             }};
            }};
}

enum class First { tokens, turn, conversation };

Row submitting(const char *detail, const char *name, First first) {
    return {"stasis_scheduler_submit", detail, Needs::warm_model, name, [=](stasis_model *model) {
                const auto all = std::make_shared<Scheduling>(model, 20);
                if (first == First::conversation) { // which an empty log agrees with
                    REQUIRE(stasis_session_rewind(all->sessions[0].get(), 0, 0, nullptr, nullptr) ==
                            STASIS_OK);
                }
                return Trial{[=](stasis_error *error) {
                                 auto prompt = sized<stasis_prompt>();
                                 if (first == First::turn) {
                                     prompt.role = "user";
                                     prompt.text = "And what is m?";
                                     prompt.length = 14;
                                 } else {
                                     prompt.conversation = kConversation.data();
                                     prompt.conversation_length = kConversation.size();
                                 }
                                 const stasis_token stop = 5;
                                 auto options = sized<stasis_generate_options>();
                                 options.stop_tokens = &stop;
                                 options.stop_token_count = 1;
                                 return first != First::tokens
                                            ? stasis_scheduler_submit(all->scheduler.get(),
                                                                      all->sessions[0].get(),
                                                                      &options, &prompt, error)
                                            : all->submit(2, error);
                             },
                             [=] {
                                 for (const Session &session : all->sessions) {
                                     if (position(session.get()) > 0) {
                                         draw(fork(session.get()).get());
                                     }
                                     CHECK(stasis_session_set_sampling(session.get(), nullptr,
                                                                       nullptr) == STASIS_OK);
                                 }
                             },
                             [=] {
                                 stasis_scheduler_event *event = nullptr;
                                 REQUIRE(stasis_scheduler_next(all->scheduler.get(), nullptr,
                                                               STASIS_FOREVER, &event,
                                                               nullptr) == STASIS_OK);
                                 const std::string token = std::to_string(event->token);
                                 stasis_scheduler_event_free(event);
                                 return token;
                             }};
            }};
}

Row calling(const char *function,
            std::function<stasis_status(Scheduling &, stasis_model *, stasis_error *)> call) {
    return {function, "", Needs::warm_model, kGemma, [=](stasis_model *model) {
                const auto all = std::make_shared<Scheduling>(model, 20);
                REQUIRE(all->submit(2, nullptr) == STASIS_OK);
                return Trial{[=](stasis_error *error) { return call(*all, model, error); },
                             [=] { check_whole(model, all->sessions[2].get()); },
                             [=] { return outcome_of(all->sessions[2].get()); }};
            }};
}

} // namespace

std::vector<Row> scheduler_rows() {
    return {
        calling("stasis_scheduler_create",
                [](Scheduling &, stasis_model *model, stasis_error *error) {
                    stasis_scheduler *made = nullptr;
                    const stasis_status status =
                        stasis_scheduler_create(model, nullptr, &made, error);
                    CHECK((status == STASIS_OK) == (made != nullptr));
                    stasis_scheduler_close(made);
                    return status;
                }),
        submitting("tokens", kGemma, First::tokens),
        submitting("a turn", kChat, First::turn),
        submitting("a conversation", kChat, First::conversation),
        running("prompts and tokens", Needs::fresh_model, kGemma, 50),
        running("prompts and tokens", Needs::warm_model, kGemma, 50),
        running("text", Needs::warm_model, kChat, 50),
        running("hybrid", Needs::warm_model, kRecurrent, 250),
        calling("stasis_scheduler_cancel",
                [](Scheduling &all, stasis_model *, stasis_error *error) {
                    return stasis_scheduler_cancel(all.scheduler.get(), all.sessions[2].get(),
                                                   error);
                }),
        calling("stasis_scheduler_get_stats",
                [](Scheduling &all, stasis_model *, stasis_error *error) {
                    auto stats = sized<stasis_scheduler_stats>();
                    return stasis_scheduler_get_stats(all.scheduler.get(), &stats, error);
                }),
    };
}

} // namespace failures
