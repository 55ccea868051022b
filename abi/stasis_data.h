/* Stasis: data that a host keeps in a session, and the turns of its log. Part of stasis.h, which
 * states the conventions; include that. */
#ifndef STASIS_DATA_H
#define STASIS_DATA_H
#include "stasis.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* A session keeps bytes for its host, each under a name: a title, a user, settings of the host's
 * own. They mean nothing to the library, and change nothing that is computed: not the digest, and
 * not what stasis_snapshot_compare compares. A name is a zero-terminated text of 1 to
 * STASIS_DATA_NAME_MAX bytes of UTF-8. A session has at most STASIS_DATA_ENTRIES_MAX of them, and
 * names and values together at most STASIS_DATA_BYTES_MAX bytes.
 *
 * A fork has a copy, and each may then be changed alone. A rewind, also one to 0, keeps data as it
 * is. stasis_session_save and stasis_session_write store it with the session, under the file's
 * root, where a change is found; a value that the file holds already under its name is not written
 * again, and neither are the names where nothing has changed. A load restores it, and compact keeps
 * it. A file with data is read by builds that do not know data, as if there was none; they refuse
 * to commit to it, which would lose it. What was removed stays in the file until it is compacted.
 */
#define STASIS_DATA_NAME_MAX 255u
#define STASIS_DATA_ENTRIES_MAX 1024u
#define STASIS_DATA_BYTES_MAX 16777216u

/* Sets the bytes under a name, in place of those that were there; they are copied. With `bytes`
 * NULL and `length` 0 the name is removed; bytes of length 0 at any other address are a value.
 * Allowed where calls that read the session are: also while a generation of it is open.
 * Errors; the data that there was stays:
 *   INVALID_ARGUMENT  the name is empty, too long or not UTF-8
 *   NOT_FOUND         the name to be removed is not there
 *   UNSUPPORTED       more than a session may keep; the message names the limit */
stasis_status stasis_session_set_data(stasis_session *session, const char *name, const void *bytes,
                                      size_t length, stasis_error *error);

/* Copies the bytes under a name. BUFFER_TOO_SMALL: `*length` says how many there are. NOT_FOUND:
 * there is no such name. */
stasis_status stasis_session_get_data(const stasis_session *session, const char *name, void *bytes,
                                      size_t capacity, size_t *length, stasis_error *error);
stasis_status stasis_snapshot_get_data(const stasis_snapshot *snapshot, const char *name,
                                       void *bytes, size_t capacity, size_t *length,
                                       stasis_error *error);

/* One name of a session's data. */
typedef struct stasis_data_entry {
    uint32_t struct_size; /* the library sets it to the stride */
    uint32_t reserved;    /* 0 */
    uint64_t bytes;       /* of the value */
    char name[256];       /* zero-terminated; in a file that others wrote not always UTF-8 */
} stasis_data_entry;

/* Lists the names, ascending by their bytes, into an array whose elements are `stride` bytes apart:
 * sizeof(stasis_data_entry). BUFFER_TOO_SMALL: `*count` says how many there are. */
stasis_status stasis_session_list_data(const stasis_session *session, stasis_data_entry *entries,
                                       size_t stride, size_t capacity, size_t *count,
                                       stasis_error *error);
stasis_status stasis_snapshot_list_data(const stasis_snapshot *snapshot, stasis_data_entry *entries,
                                        size_t stride, size_t capacity, size_t *count,
                                        stasis_error *error);

/* Whose turn a token belongs to. */
#define STASIS_ROLE_NONE 0u /* nobody's: given as tokens outside a chat template's turns */
#define STASIS_ROLE_SYSTEM 1u
#define STASIS_ROLE_USER 2u
#define STASIS_ROLE_ASSISTANT 3u
#define STASIS_ROLE_OTHER 4u /* of a role that none of these names, such as "tool" */

/* One turn of a conversation: the tokens [begin, end) of one message or one reply, with what the
 * chat template puts around it. The turns of a log follow each other without a gap: one begins at
 * each token with which a message or a generation prompt begins, at position 0, and wherever the
 * role changes. So a reply begins with its generation prompt, or without one with the first token
 * that is drawn, and ends with the tokens that close it, which may come with the next message.
 * Tokens given without a message (stasis_session_append) belong to the reply that
 * is open; where none is, those between two turns are one turn of role STASIS_ROLE_NONE, in however
 * many calls they were appended. A rewind cuts the last turn. Where a template joins a system text
 * with the user's first message, both are one turn, the user's. */
typedef struct stasis_turn {
    uint32_t struct_size; /* the library sets it to the stride */
    uint32_t role;        /* STASIS_ROLE_... */
    uint64_t begin, end;  /* positions, whole: with what the template added */
    /* From its first token that the template did not add to behind its last one: what
     * stasis_session_text shows of it. Both are `end` where there is none, as in a generation
     * prompt before its reply. */
    uint64_t content_begin, content_end;
    /* STASIS_SOURCE_...: SAMPLED if some of the content was drawn, else TEXT if some is the text of
     * a message, else PROMPT: given as tokens; TEMPLATE where there is none. */
    uint32_t source;
    uint32_t reserved; /* 0 */
} stasis_turn;

/* Describes the turns from the one that position `begin` is in, which is described whole, to the
 * end of the log; none if `begin` is the end. The elements of `turns` are `stride` bytes apart:
 * sizeof(stasis_turn). Time is in proportion to the log. BUFFER_TOO_SMALL: `*count` says how many
 * there are. INVALID_ARGUMENT: `begin` is beyond the end. */
stasis_status stasis_session_turns(const stasis_session *session, uint64_t begin,
                                   stasis_turn *turns, size_t stride, size_t capacity,
                                   size_t *count, stasis_error *error);
stasis_status stasis_snapshot_turns(const stasis_snapshot *snapshot, uint64_t begin,
                                    stasis_turn *turns, size_t stride, size_t capacity,
                                    size_t *count, stasis_error *error);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif /* STASIS_DATA_H */
