// Speculative decoding: setting a session's drafter; see stasis_generate.h. Must not know how
// tokens are proposed.
#include "runtime/session/draft.h"

#include <algorithm>

#include "abi/handles.h"
#include "abi/options.h"
#include "abi/trace.h"
#include "runtime/session/session.h"

namespace stasis::abi {

namespace {

// Returns a number of tokens, or `otherwise` if 0, the default, was given. Throws
// Error(invalid_argument) if it exceeds the most that a pass can check.
uint32_t tokens_of(uint64_t given, uint32_t otherwise, const char *name) {
    if (given > stasis::DraftOptions::kTokensMost) {
        fail(Status::invalid_argument, "%s is %llu: expected at most %u", name,
             static_cast<Number>(given), stasis::DraftOptions::kTokensMost);
    }
    return given == 0 ? otherwise : static_cast<uint32_t>(given);
}

// Reads the options. A default of one limit adapts to the other, so that either may be set alone.
stasis::DraftOptions read_draft(const stasis_model *draft, const stasis_draft_options *given) {
    const stasis_draft_options options = read_struct(given, "options");
    require_zero(options.reserved, "options");
    stasis::DraftOptions result;
    result.model = draft == nullptr ? nullptr : draft->model;
    const uint32_t most = tokens_of(options.tokens_max, result.tokens_max, "options.tokens_max");
    result.tokens_min =
        tokens_of(options.tokens_min, std::min(result.tokens_min, most), "options.tokens_min");
    result.tokens_max = options.tokens_max == 0 ? std::max(most, result.tokens_min) : most;
    return result;
}

} // namespace

} // namespace stasis::abi

using namespace stasis::abi;

void stasis_draft_options_init(stasis_draft_options *options, size_t size) {
    init_struct(options, size);
}

stasis_status stasis_session_set_draft(stasis_session *session, stasis_model *draft,
                                       const stasis_draft_options *options, stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require(session, "session");
        const SessionUse use(*session, caller, Use::changes);
        if (draft == nullptr && options == nullptr) {
            session->session->set_draft(std::nullopt);
        } else {
            session->session->set_draft(read_draft(draft, options));
        }
    });
}
