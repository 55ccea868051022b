// Generations that a host asks for their tokens, and what they share with the callback form: how
// options are read and events written. Must not know how tokens are drawn.
#pragma once

#include "abi/cancel.h"
#include "abi/handles.h"
#include "abi/options.h"
#include "runtime/session/generate.h"

// While it is open, `session` and the session's `generation` refer to each other; both are changed
// while the session is held. One that the host has ended while a call held the session is the
// session's: the gate has no owner then, and the next call that changes the session deletes it.
struct stasis_generation {
    stasis_generation(stasis_session &of, const stasis_generate_options &options);

    // Makes it the session's, which must be held.
    void open() noexcept;
    // Takes the session and the generation apart. The session must be held, or be about to be freed
    // by a caller that is set in it.
    void leave() noexcept;

    stasis_session *session; // null: over, or the session was freed
    stasis::Generation run;
    const stasis::abi::HeldCancel cancel;
    const stasis::Deadline deadline; // of the whole generation
    mutable std::atomic<bool> busy{false};
};

namespace stasis::abi {

// Reads all options except the callback and the cancel handle. Throws Error for the arrays and
// texts that are refused.
GenerateOptions read_generate_options(const stasis_generate_options &given);
// Throws Error(invalid_argument) if the options have a callback.
void require_no_callback(const stasis_generate_options &given);
stasis_generated to_abi(const Generated &generated);
stasis_generate_result to_abi(const GenerateResult &result);
// Throws Error(cancelled) or Error(timeout) if that ended the generation.
void require_in_time(const GenerateResult &result);

} // namespace stasis::abi
