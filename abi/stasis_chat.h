/* Stasis: conversations with tools, thoughts and switches. Part of stasis.h, which states the
 * conventions; include that.
 *
 * A conversation is JSON:
 *
 *     {"messages": [{"role": "user", "content": "Is it raining in Bern?"}, ...],
 *      "tools": [{"type": "function", "function": {"name": ..., "parameters": {...}}}],
 *      "date": "2026-01-02", "enable_thinking": false}
 *
 * and is rendered by the template in the model's own files, byte for byte as transformers' renderer
 * (5.24) renders the same messages, tools and switches. Messages have the members that transformers
 * knows: "tool_calls" with "arguments" as an object, "reasoning_content", "tool_call_id" and what
 * else the template reads. Members other than "messages", "tools", "documents" and "date" are the
 * template's own switches. "date" is what the template prints as today's; without one it is that of
 * stasis_model_options, and without that a template that insists on a date is UNSUPPORTED. The
 * clock is never read: a rendering is a function of its inputs.
 *
 * The host holds the conversation, as any host with tools does, and gives all of it each time. The
 * session's log stays the only state: saves, forks and rewinds need nothing else. */
#ifndef STASIS_CHAT_H
#define STASIS_CHAT_H
#include "stasis.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* One message of a conversation, read during the call. */
typedef struct stasis_message {
    uint32_t struct_size, reserved;
    const char *role; /* "system", "user", "assistant", or another that the template accepts */
    const char *text;
    size_t length;
} stasis_message;

#define STASIS_RENDER_REPLY 1u /* end with the generation prompt */
/* Renders a whole conversation through the model's chat template, bos included where the template
 * has it. `stride` is the distance between messages in bytes. INVALID_ARGUMENT: no message, or the
 * template refuses the order of roles. */
stasis_status stasis_model_render(const stasis_model *model, const stasis_message *messages,
                                  size_t stride, size_t count, uint32_t flags, char *text,
                                  size_t capacity, size_t *length, stasis_error *error);

#define STASIS_CHAT_REPLY 1u /* end with the generation prompt */

/* Renders a conversation. Thread-safe. The time is limited in proportion to the conversation.
 * Errors:
 *   INVALID_ARGUMENT  not such JSON, a date that is none, or the template refuses the conversation
 *   UNSUPPORTED       the model has no template of its own, or one that needs what the interpreter
 *                     lacks, which the message names */
stasis_status stasis_model_render_chat(const stasis_model *model, const char *conversation,
                                       size_t size, uint32_t flags, char *text, size_t capacity,
                                       size_t *length, stasis_error *error);

/* Appends what the session's log lacks of a conversation's rendering. The tokens are those of the
 * whole rendering, but for text that is in the log already: drawn tokens that spell the same text
 * stay. Markers of special tokens inside the messages are text and never become those tokens.
 *
 * Where a template renders an earlier turn otherwise than the log has it (Qwen drops thoughts of
 * turns before the last user's, gpt-oss ends an earlier reply with another token), nothing is
 * appended: the status is CONFLICT, and `*position` is the first position that differs.
 * stasis_session_rewind to it, and this call again, make the log that rendering exactly. After
 * success `*position` is the session's. `position` may be NULL.
 * Errors:
 *   statuses of append and of stasis_model_render_chat
 *   CONFLICT  the log differs from the rendering, or has more */
stasis_status stasis_session_append_chat(stasis_session *session, const char *conversation,
                                         size_t size, uint32_t flags, uint64_t *position,
                                         const stasis_run_options *options, stasis_error *error);

/* Returns what stasis_session_append_chat appends, and appends nothing: `*position` (may be NULL)
 * becomes the first position that the log lacks or has otherwise, and the tokens are those that
 * follow there. With an empty session they are those of the whole rendering.
 * Errors: those of stasis_model_render_chat; BUFFER_TOO_SMALL: `*count` says how many there are,
 * and `*position` is set. */
stasis_status stasis_session_chat_tokens(const stasis_session *session, const char *conversation,
                                         size_t size, uint32_t flags, uint64_t *position,
                                         stasis_token *tokens, size_t capacity, size_t *count,
                                         stasis_error *error);

#define STASIS_REPLY_COMPLETE 1u /* the reply will not go on, though no end token has come */

/* Returns what follows the log's last generation prompt as a message in JSON, to be put behind the
 * conversation's: "role", "content", and where there are any "reasoning_content" and "tool_calls",
 * each with the function's "name" and its "arguments" as an object. Known are the forms of Qwen and
 * Hermes (JSON, and the tagged one of newer models), Llama 3, Mistral, Gemma 4 and gpt-oss; with
 * another template all text is content. May be called while the reply is generated: until its end
 * token, or the flag, content and thoughts only grow, what may still become a marker or a call is
 * held back, and a call appears when it has ended. Text in the form of a call that is none stays in
 * the content. `conversation` may be NULL; its tools tell the types of arguments in the tagged
 * form, where otherwise what reads as JSON is JSON.
 * Errors:
 *   INVALID_ARGUMENT  the conversation is not such JSON
 *   NOT_FOUND         the log has no generation prompt
 *   UNSUPPORTED       the model has no tokenizer or template */
stasis_status stasis_session_reply(const stasis_session *session, const char *conversation,
                                   size_t size, uint32_t flags, char *message, size_t capacity,
                                   size_t *length, stasis_error *error);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif /* STASIS_CHAT_H */
