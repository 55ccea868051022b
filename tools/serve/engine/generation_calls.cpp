// Replies that may have one call (parallel_tool_calls, disable_parallel_tool_use); see
// generation.h. Those that must have one are held to it by their form (tool_calls.h).
#include "tools/cli/terminal.h"
#include "tools/serve/engine/generation.h"

namespace serve {

using command::sized;

bool Generation::has_single_call() const {
    return is_conversation() && !request_.parallel && request_.answer != api::Answer::tool;
}

// Whether the reply is looked at after each token for a call that ends it. Without tools there is
// none to wait for: looking costs as much as the reply is long.
bool Generation::ends_with_call() const {
    return has_single_call() && !tools_.empty();
}

// On the computing thread, after the token at this position: behind a call nothing is drawn.
void Generation::end_at_call(Choice &choice, uint64_t position) {
    if (ends_with_call() && !choice.reply.calls.empty()) {
        choice.call_end = position + 1;
        model_->cancel(choice.session.get());
    }
}

// Reads the whole reply, and makes the log that of its one call, so that what is stored is what the
// client is told. Behind the call there may be tokens that were drawn before the scheduler heard of
// its end; and where a family writes all calls as one list (Mistral), the template writes the first
// one in their place.
void Generation::read_single_call(Choice &choice) {
    stasis_session *const session = choice.session.get();
    stasis_error error{};
    auto options = sized<stasis_run_options>();
    options.cancel = cancel_.get();
    const auto cut_at = [&](uint64_t position) {
        auto info = sized<stasis_session_info>();
        require(stasis_session_get_info(session, &info, &error), error);
        if (position < info.position) {
            require(
                stasis_session_rewind(session, position, STASIS_REWIND_RECOMPUTE, &options, &error),
                error);
        }
    };
    if (choice.call_end) {
        cut_at(*choice.call_end);
    }
    read_reply(choice, true);
    if (!choice.later_calls) {
        return;
    }
    const std::string said = api::with_reply(request_.conversation, choice.reply)
                                 .dump(-1, ' ', false, api::Json::error_handler_t::replace);
    uint64_t position = 0;
    size_t count = 0;
    const stasis_status status = stasis_session_chat_tokens(session, said.data(), said.size(), 0,
                                                            &position, nullptr, 0, &count, &error);
    if (status != STASIS_BUFFER_TOO_SMALL) {
        require(status, error);
    }
    cut_at(position);
    require(
        stasis_session_append_chat(session, said.data(), said.size(), 0, nullptr, &options, &error),
        error);
}

} // namespace serve
