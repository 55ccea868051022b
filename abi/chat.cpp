// Conversations in JSON; see stasis_chat.h.
#include <algorithm>

#include "abi/handles.h"
#include "abi/run.h"
#include "abi/trace.h"
#include "runtime/session/model.h"
#include "runtime/session/session.h"

using namespace stasis::abi;

stasis_status stasis_model_render_chat(const stasis_model *model, const char *conversation,
                                       size_t size, uint32_t flags, char *text, size_t capacity,
                                       size_t *length, stasis_error *error) {
    return enter(error, [&] {
        require(model, "model");
        require_array(conversation, size, "conversation");
        require(length, "length");
        require_flags(flags, STASIS_CHAT_REPLY);
        if (!model->model->chat) {
            fail(stasis::Status::unsupported, "the model has no chat template");
        }
        const stasis::ChatInput input = stasis::read_chat({conversation, size});
        write_text(model->model->chat->render(input, input.messages.size(),
                                              (flags & STASIS_CHAT_REPLY) != 0),
                   text, capacity, length);
    });
}

stasis_status stasis_session_append_chat(stasis_session *session, const char *conversation,
                                         size_t size, uint32_t flags, uint64_t *position,
                                         const stasis_run_options *options, stasis_error *error) {
    uint64_t reached = 0;
    const stasis_status status = enter(error, [&](const Caller &caller) {
        require(session, "session");
        const SessionUse use(*session, caller, Use::changes);
        require_array(conversation, size, "conversation");
        require_flags(flags, STASIS_CHAT_REPLY);
        Run run(caller, options);
        session->session->append_chat(stasis::read_chat({conversation, size}),
                                      (flags & STASIS_CHAT_REPLY) != 0, reached, run.options());
    });
    if (position != nullptr && (status == STASIS_OK || status == STASIS_CONFLICT)) {
        *position = reached;
    }
    return status;
}

stasis_status stasis_session_chat_tokens(const stasis_session *session, const char *conversation,
                                         size_t size, uint32_t flags, uint64_t *position,
                                         stasis_token *tokens, size_t capacity, size_t *count,
                                         stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require(session, "session");
        const SessionUse use(*session, caller, Use::looks);
        require_array(conversation, size, "conversation");
        require(count, "count");
        require_flags(flags, STASIS_CHAT_REPLY);
        const stasis::ChatTokens lacking = session->session->chat_tokens(
            stasis::read_chat({conversation, size}), (flags & STASIS_CHAT_REPLY) != 0, {});
        if (position != nullptr) {
            *position = lacking.position;
        }
        require_room(lacking.tokens.size(), capacity, count, "tokens");
        require_array(tokens, lacking.tokens.size(), "tokens");
        std::copy(lacking.tokens.begin(), lacking.tokens.end(), tokens);
    });
}

stasis_status stasis_session_reply(const stasis_session *session, const char *conversation,
                                   size_t size, uint32_t flags, char *message, size_t capacity,
                                   size_t *length, stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require(session, "session");
        const SessionUse use(*session, caller, Use::looks);
        require_array(conversation, size, "conversation");
        require(length, "length");
        require_flags(flags, STASIS_REPLY_COMPLETE);
        stasis::jinja::Value tools;
        if (conversation != nullptr) {
            const stasis::ChatInput input = stasis::read_chat({conversation, size});
            for (const auto &[name, value] : input.variables) {
                tools = name == "tools" ? value : tools;
            }
        }
        const stasis::jinja::Value reply =
            session->session->reply_message(tools, (flags & STASIS_REPLY_COMPLETE) != 0);
        stasis::jinja::Budget budget{SIZE_MAX, false}; // as much as the reply has
        write_text(stasis::jinja::to_json(reply, {}, budget), message, capacity, length);
    });
}
