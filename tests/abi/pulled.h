// Generations in both forms, told and pulled, as plain data that tests compare.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/abi/fixture.h"

namespace abi_test {

using Generation = std::unique_ptr<stasis_generation, Releaser<stasis_generation_end>>;

struct PulledEvent {
    stasis_token token = 0;
    uint64_t position = 0;
    std::string text = {};
    uint32_t last = 7; // what no event has
    uint32_t count = 0;
    std::string probabilities = {}; // the bits of all of them
    Tokens best = {};

    bool operator==(const PulledEvent &) const = default;
};

inline PulledEvent event_of(const stasis_generated &from) {
    PulledEvent event{
        from.token, from.position, {from.text, from.length}, from.last, from.log_probability_count};
    event.probabilities.assign(reinterpret_cast<const char *>(&from.log_probability),
                               sizeof from.log_probability);
    if (event.count != 0) {
        event.probabilities.append(reinterpret_cast<const char *>(from.best_log_probabilities),
                                   event.count * sizeof(float));
        event.best.assign(from.best_tokens, from.best_tokens + event.count);
    }
    return event;
}

struct Outcome {
    std::vector<PulledEvent> events = {};
    stasis_generate_result result = {};

    bool operator==(const Outcome &other) const {
        return events == other.events && std::memcmp(&result, &other.result, sizeof result) == 0;
    }
};

// With a callback, which stops after so many events.
inline Outcome told(stasis_session *session, stasis_generate_options options,
                    uint64_t stop_after = UINT64_MAX) {
    struct Hearer {
        Outcome outcome;
        uint64_t left;
    } hearer{{}, stop_after};
    options.callback_user = &hearer;
    options.callback = [](void *user, const stasis_generated *event) -> int32_t {
        auto &self = *static_cast<Hearer *>(user);
        self.outcome.events.push_back(event_of(*event));
        return --self.left == 0 ? 1 : 0;
    };
    hearer.outcome.result = sized<stasis_generate_result>();
    stasis_error error;
    const stasis_status status =
        stasis_session_generate(session, &options, &hearer.outcome.result, &error);
    REQUIRE_MESSAGE((status == STASIS_OK || status == STASIS_STOPPED), error.message);
    return hearer.outcome;
}

inline Generation begin(stasis_session *session, const stasis_generate_options &options) {
    stasis_generation *generation = nullptr;
    stasis_error error;
    const stasis_status status = stasis_generation_begin(session, &options, &generation, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    return Generation(generation);
}

// Gives an event that is none (`last`) unless the call has written one.
inline stasis_status try_next(stasis_generation *generation, PulledEvent &event) {
    auto raw = sized<stasis_generated>();
    raw.last = 7;
    const stasis_status status = stasis_generation_next(generation, &raw, nullptr);
    event = raw.last == 7 ? PulledEvent{} : event_of(raw);
    return status;
}

inline PulledEvent next(stasis_generation *generation) {
    PulledEvent event;
    REQUIRE(try_next(generation, event) == STASIS_OK);
    return event;
}

inline stasis_generate_result result_of(const stasis_generation *generation) {
    auto result = sized<stasis_generate_result>();
    REQUIRE(stasis_generation_get_result(generation, &result, nullptr) == STASIS_OK);
    return result;
}

enum class Drafter { none, lookup, model };

// A session over a prompt that repeats itself, which settings and a drafter wait for.
inline Session prepared(stasis_model *model, Drafter drafter, float temperature) {
    Session session = session_of(model, joined(some_tokens(20), some_tokens(20)));
    auto sampling = sized<stasis_sampling>();
    sampling.seed = 3;
    sampling.temperature = temperature;
    sampling.repetition_penalty = 1.1F;
    REQUIRE(stasis_session_set_sampling(session.get(), &sampling, nullptr) == STASIS_OK);
    if (drafter != Drafter::none) {
        auto options = sized<stasis_draft_options>();
        options.tokens_min = options.tokens_max = 4;
        REQUIRE(stasis_session_set_draft(session.get(), drafter == Drafter::model ? model : nullptr,
                                         &options, nullptr) == STASIS_OK);
    }
    return session;
}

inline stasis_generate_options on_and_on(uint64_t count) {
    auto options = sized<stasis_generate_options>();
    options.flags = STASIS_GENERATE_IGNORE_END;
    options.tokens_max = count;
    return options;
}

// A trace whose callback acts at an event of one kind.
struct Acting {
    uint32_t kind;
    std::function<void()> act;
    static void hear(void *user, const stasis_trace_event *event) {
        const auto &self = *static_cast<const Acting *>(user);
        if (event->kind == self.kind) {
            self.act();
        }
    }
    void listen(stasis_session *session) {
        auto trace = sized<stasis_trace_options>();
        trace.callback = hear;
        trace.user = this;
        REQUIRE(stasis_session_set_trace(session, &trace, nullptr) == STASIS_OK);
    }
};

// All events, without the last one where a callback would not be called with it.
inline Outcome pulled(stasis_session *session, const stasis_generate_options &options) {
    const Generation generation = begin(session, options);
    Outcome outcome;
    do {
        outcome.events.push_back(next(generation.get()));
    } while (outcome.events.back().last == 0);
    if (outcome.events.back().text.empty()) {
        outcome.events.pop_back();
    }
    outcome.result = result_of(generation.get());
    return outcome;
}

} // namespace abi_test
