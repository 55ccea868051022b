// What tests of schedulers share: sessions with work of their own, and the same work done alone.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/abi/pulled.h"

namespace abi_test {

using Scheduler = std::unique_ptr<stasis_scheduler, Releaser<stasis_scheduler_close>>;
using Event = std::unique_ptr<stasis_scheduler_event, Releaser<stasis_scheduler_event_free>>;

inline Scheduler
make_scheduler(stasis_model *model,
               const stasis_scheduler_options &options = sized<stasis_scheduler_options>()) {
    stasis_scheduler *scheduler = nullptr;
    stasis_error error;
    const stasis_status status = stasis_scheduler_create(model, &options, &scheduler, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    return Scheduler(scheduler);
}

inline stasis_scheduler_options limits(uint32_t sessions_max, uint32_t slice,
                                       uint64_t events_max = 0) {
    auto options = sized<stasis_scheduler_options>();
    options.sessions_max = sessions_max;
    options.slice = slice;
    options.events_max = events_max;
    return options;
}

// Null after the timeout.
inline Event next(const Scheduler &scheduler, const Session &session = nullptr,
                  uint64_t timeout_ms = STASIS_FOREVER) {
    stasis_scheduler_event *event = nullptr;
    stasis_error error;
    const stasis_status status =
        stasis_scheduler_next(scheduler.get(), session.get(), timeout_ms, &event, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    return Event(event);
}

inline stasis_scheduler_stats stats_of(const Scheduler &scheduler) {
    auto stats = sized<stasis_scheduler_stats>();
    REQUIRE(stasis_scheduler_get_stats(scheduler.get(), &stats, nullptr) == STASIS_OK);
    return stats;
}

// What a session is to do: settings, and a prompt after the tokens that it has.
struct Task {
    Tokens prompt = {};
    uint64_t tokens_max = 10;
    uint32_t log_probabilities = 0;
    bool ignore_end = true;
    Tokens stop_tokens = {};
    std::vector<std::string> stop_strings = {};
    stasis_cancel *cancel = nullptr;
    void *user = nullptr;
    uint64_t timeout_ms = 0;

    // Calls with the options, which are valid during it.
    template <typename Call> auto with_options(const Call &call) const {
        std::vector<const char *> strings;
        for (const std::string &string : stop_strings) {
            strings.push_back(string.c_str());
        }
        auto options = sized<stasis_generate_options>();
        options.flags = ignore_end ? STASIS_GENERATE_IGNORE_END : 0;
        options.tokens_max = tokens_max;
        options.log_probability_count = log_probabilities;
        options.stop_tokens = stop_tokens.data();
        options.stop_token_count = stop_tokens.size();
        options.stop_strings = strings.data();
        options.stop_string_count = strings.size();
        options.cancel = cancel;
        options.callback_user = user;
        options.timeout_ms = timeout_ms;
        return call(options);
    }
};

inline stasis_status try_submit(const Scheduler &scheduler, const Session &session,
                                const Task &task, stasis_error *error = nullptr) {
    auto prompt = sized<stasis_prompt>();
    prompt.tokens = task.prompt.data();
    prompt.token_count = task.prompt.size();
    return task.with_options([&](const stasis_generate_options &options) {
        return stasis_scheduler_submit(scheduler.get(), session.get(), &options, &prompt, error);
    });
}

inline void submit(const Scheduler &scheduler, const Session &session, const Task &task) {
    stasis_error error;
    const stasis_status status = try_submit(scheduler, session, task, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
}

inline PulledEvent event_of(const stasis_scheduler_event &from) {
    auto as = sized<stasis_generated>();
    as.token = from.token;
    as.position = from.position;
    as.text = from.text;
    as.length = from.length;
    as.last = from.end;
    as.log_probability = from.log_probability;
    as.log_probability_count = from.log_probability_count;
    as.best_tokens = from.best_tokens;
    as.best_log_probabilities = from.best_log_probabilities;
    return event_of(as);
}

// What a session's events said.
struct Heard {
    std::vector<PulledEvent> events = {}; // the last one only if it has text
    std::vector<uint64_t> passes = {};    // of the tokens
    uint64_t begin = 0, count = 0;
    uint32_t reason = 4711;
    stasis_status status = -1; // there was no end
    std::string message = {};

    void hear(const stasis_scheduler_event &event) {
        if (event.end == 0) {
            passes.push_back(event.pass);
        } else {
            begin = event.begin;
            count = event.count;
            reason = event.stop_reason;
            status = event.status;
            message = event.message;
        }
        if (event.end == 0 || event.length != 0) {
            events.push_back(event_of(event));
        }
    }
};

using AllHeard = std::map<const stasis_session *, Heard>;

// Fetches events until so many sessions have ended.
inline AllHeard hear_all(const Scheduler &scheduler, size_t sessions) {
    AllHeard heard;
    while (sessions > 0) {
        const Event event = next(scheduler);
        heard[event->session].hear(*event);
        sessions -= event->end;
    }
    return heard;
}

// The same work by append and generate.
inline Outcome alone(stasis_session *session, const Task &task) {
    append(session, task.prompt);
    return task.with_options([&](stasis_generate_options options) {
        options.callback_user = nullptr;
        return told(session, options);
    });
}

inline void check_as_alone(const Heard &heard, const Session &session, const Session &twin,
                           const Task &task) {
    const Outcome expected = alone(twin.get(), task);
    CHECK(heard.status == STASIS_OK);
    CHECK((heard.events == expected.events));
    CHECK(heard.reason == expected.result.stop_reason);
    CHECK(heard.begin == expected.result.begin);
    CHECK(heard.count == expected.result.count);
    CHECK(digest(session.get()) == digest(twin.get()));
    CHECK(same_bits(logits_of(session), logits_of(twin)));
}

} // namespace abi_test
