// Generations that a host asks for their tokens, and who may use their session meanwhile; see
// stasis_generate.h. Must not know how tokens are drawn.
#include "abi/generation.h"

#include <memory>
#include <optional>

#include "abi/scheduler.h"
#include "abi/trace.h"

stasis_generation::stasis_generation(stasis_session &of, const stasis_generate_options &options)
    : session(&of), run(*of.session, stasis::abi::read_generate_options(options)),
      cancel(options.cancel), deadline(stasis::Deadline::in_ms(options.timeout_ms)) {}

void stasis_generation::open() noexcept {
    session->generation = this;
    session->gate.set_owner(stasis::abi::Gate::Owner::generation);
}

void stasis_generation::leave() noexcept {
    run.leave();
    session->gate.set_owner(stasis::abi::Gate::Owner::none);
    session->generation = nullptr;
    session = nullptr;
}

namespace stasis::abi {

void hold_session(const stasis_session &session, const Caller &caller, Use use, bool waits) {
    Gate::Answer answer;
    if (use == Use::generates) {
        answer = session.gate.begin_pass(waits) ? Gate::Answer::in : Gate::Answer::busy;
    } else {
        const bool begins = use == Use::begins, changes = use == Use::changes;
        answer = session.gate.enter(changes || use == Use::reads, changes || begins, waits);
    }
    switch (answer) {
    case Gate::Answer::in:
        break;
    case Gate::Answer::busy:
        fail(Status::busy, "another call is running on this session");
    case Gate::Answer::generation:
        fail(Status::busy, "a generation of this session is not over: end it before the session is "
                           "changed");
    case Gate::Answer::scheduler:
        fail(Status::busy, "the session is in a scheduler: cancel it there, and fetch its end, "
                           "before the session is changed");
    }
    assert(session.caller == nullptr);
    session.caller = &caller;
    stasis_generation *const generation = session.generation;
    if (generation != nullptr &&
        (use == Use::changes || use == Use::begins)) { // the host has ended it
        generation->leave();
        delete generation;
    } else if (generation != nullptr && use == Use::looks) {
        generation->run.show_state();
    } else if (generation != nullptr && use != Use::generates) {
        generation->run.settle();
    }
}

void release_session(const stasis_session &session, Use use) noexcept {
    session.caller = nullptr;
    if (use == Use::generates) {
        session.gate.end_pass();
        return;
    }
    const std::shared_ptr<Scheduler> scheduler = session.scheduler.lock(); // while none is changed
    if (session.gate.leave() && scheduler != nullptr) {
        scheduler->look_again();
    }
}

void require_no_callback(const stasis_generate_options &given) {
    if (given.callback != nullptr || given.callback_user != nullptr) {
        fail(Status::invalid_argument, "options.callback and options.callback_user: expected NULL, "
                                       "for tokens are asked for");
    }
}

} // namespace stasis::abi

using namespace stasis::abi;
using stasis::Status;

stasis_status stasis_generation_begin(stasis_session *session,
                                      const stasis_generate_options *options,
                                      stasis_generation **generation, stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require(session, "session");
        require(generation, "generation");
        const stasis_generate_options given = read_struct(options, "options");
        require_no_callback(given);
        const SessionUse use(*session, caller, Use::begins);
        *generation = new stasis_generation(*session, given);
        (*generation)->open();
    });
}

stasis_status stasis_generation_next(stasis_generation *generation, stasis_generated *generated,
                                     stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require(generation, "generation");
        require_struct(generated, "generated");
        const uint32_t size = generated->struct_size;
        const Busy busy(generation->busy, "generation");
        if (generation->session == nullptr && !generation->run.over()) {
            fail(Status::not_found, "the session was freed before the generation was over");
        }
        std::optional<SessionUse> use;
        if (generation->session != nullptr) {
            use.emplace(*generation->session, caller, Use::generates);
        }
        CallWatch watch(caller, generation->cancel.get(), nullptr, nullptr, generation->deadline);
        stasis::Generated event{};
        generation->run.next(watch.watch(), event);
        if (generation->run.over() && generation->session != nullptr) {
            generation->leave();
        }
        generated->struct_size = size; // as checked before a trace's callback could change it
        write_struct(to_abi(event), generated, "generated");
        require_in_time(generation->run.result());
    });
}

stasis_status stasis_generation_get_result(const stasis_generation *generation,
                                           stasis_generate_result *result, stasis_error *error) {
    return enter(error, [&] {
        require(generation, "generation");
        require(result, "result");
        const Busy busy(generation->busy, "generation");
        write_struct(to_abi(generation->run.result()), result, "result");
    });
}

void stasis_generation_end(stasis_generation *generation) {
    enter(nullptr, [&](const Caller &caller) {
        if (generation == nullptr) {
            return;
        }
        if (const stasis_session *const session = generation->session; session != nullptr) {
            if (!session->gate.end_owner()) {
                return;
            }
            session->caller = &caller;
            generation->leave();
            release_session(*session, Use::generates);
        }
        delete generation;
    });
}
