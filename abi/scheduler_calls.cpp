// The calls of stasis_scheduler.h: arguments are checked and read, and passed on to the scheduler.
// Must not know who computes.
#include <optional>

#include "abi/cancel.h"
#include "abi/generation.h"
#include "abi/scheduler.h"
#include "abi/trace.h"
#include "runtime/session/generate.h"
#include "runtime/session/model.h"

namespace stasis::abi {

namespace {

uint32_t option_or(uint32_t given, uint32_t usual, uint32_t most, const char *name) {
    if (given > most) {
        fail(Status::invalid_argument, "options.%s is %u: expected at most %u", name, given, most);
    }
    return given == 0 ? usual : given;
}

SchedulerLimits read_limits(const stasis_scheduler_options *options) {
    const stasis_scheduler_options given = read_struct(options, "options");
    SchedulerLimits limits;
    limits.sessions_max = option_or(given.sessions_max, 64, 1024, "sessions_max");
    limits.events_max = given.events_max == 0 ? limits.events_max : given.events_max;
    limits.slice = option_or(given.slice, 0, SliceSize::kMost, "slice");
    limits.stall_seconds = option_or(given.stall_ms, 100, UINT32_MAX, "stall_ms") / 1e3;
    return limits;
}

Prompt read_prompt(const Session &session, const stasis_prompt *prompt, const Watch &watch) {
    const stasis_prompt given = read_struct(prompt, "prompt");
    require_zero(given.reserved, "prompt");
    require_array(given.tokens, given.token_count, "prompt.tokens");
    require_array(given.text, given.length, "prompt.text");
    if (given.role == nullptr && given.length != 0) {
        fail(Status::invalid_argument, "prompt.text has no role");
    }
    require_array(given.conversation, given.conversation_length, "prompt.conversation");
    if ((given.role != nullptr) + (given.token_count != 0) + (given.conversation != nullptr) > 1) {
        fail(Status::invalid_argument,
             "prompt: expected tokens, a turn or a conversation, found more than one");
    }
    if (given.conversation != nullptr) {
        uint64_t position = 0;
        return {
            session.chat_entries(stasis::read_chat({given.conversation, given.conversation_length}),
                                 true, position, watch),
            {}};
    }
    return given.role != nullptr
               ? session.message_prompt(given.role, {given.text, given.length}, true, {})
               : session.token_prompt({given.tokens, given.token_count});
}

} // namespace

} // namespace stasis::abi

using namespace stasis::abi;
using stasis::Status;

void stasis_scheduler_options_init(stasis_scheduler_options *options, size_t size) {
    init_struct(options, size);
}

void stasis_prompt_init(stasis_prompt *prompt, size_t size) {
    init_struct(prompt, size);
}

stasis_status stasis_scheduler_create(stasis_model *model, const stasis_scheduler_options *options,
                                      stasis_scheduler **scheduler, stasis_error *error) {
    return enter(error, [&] {
        require(model, "model");
        require(scheduler, "scheduler");
        *scheduler =
            new stasis_scheduler{std::make_shared<Scheduler>(model->model, read_limits(options))};
    });
}

stasis_status stasis_scheduler_submit(stasis_scheduler *scheduler, stasis_session *session,
                                      const stasis_generate_options *options,
                                      const stasis_prompt *prompt, stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require(scheduler, "scheduler");
        require(session, "session");
        const stasis_generate_options given = read_struct(options, "options");
        if (given.callback != nullptr) {
            fail(Status::invalid_argument, "options.callback: expected NULL, for events are "
                                           "fetched");
        }
        const SessionUse use(*session, caller, Use::begins);
        stasis::GenerateOptions generate = read_generate_options(given);
        CallWatch laying_out(caller, given.cancel, nullptr, nullptr,
                             stasis::Deadline::in_ms(given.timeout_ms));
        stasis::Prompt first = read_prompt(*session->session, prompt, laying_out.watch());
        scheduler->scheduler->submit(
            *session, std::make_unique<Scheduled>(*session, std::move(generate), std::move(first),
                                                  given.cancel, given.callback_user,
                                                  stasis::Deadline::in_ms(given.timeout_ms)));
    });
}

stasis_status stasis_scheduler_next(stasis_scheduler *scheduler, const stasis_session *session,
                                    uint64_t timeout_ms, stasis_scheduler_event **event,
                                    stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require(scheduler, "scheduler");
        require(event, "event");
        const std::shared_ptr<Scheduler> held = scheduler->scheduler; // it may be closed meanwhile
        *event = held->next(caller, session, timeout_ms).release();
    });
}

void stasis_scheduler_event_free(stasis_scheduler_event *event) {
    delete static_cast<SchedulerEvent *>(event);
}

stasis_status stasis_scheduler_cancel(stasis_scheduler *scheduler, const stasis_session *session,
                                      stasis_error *error) {
    return enter(error, [&] {
        require(scheduler, "scheduler");
        require(session, "session");
        scheduler->scheduler->cancel(session);
    });
}

stasis_status stasis_scheduler_get_stats(const stasis_scheduler *scheduler,
                                         stasis_scheduler_stats *stats, stasis_error *error) {
    return enter(error, [&] {
        require(scheduler, "scheduler");
        require(stats, "stats");
        write_struct(scheduler->scheduler->stats(), stats, "stats");
    });
}

void stasis_scheduler_stop(stasis_scheduler *scheduler) {
    enter(nullptr, [&](const Caller &caller) {
        if (scheduler != nullptr) {
            scheduler->scheduler->stop(caller);
        }
    });
}

void stasis_scheduler_close(stasis_scheduler *scheduler) {
    stasis_scheduler_stop(scheduler);
    delete scheduler;
}
