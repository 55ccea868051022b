/* Stasis: what the library and a model say of themselves. Part of stasis.h, which states the
 * conventions; include that. */
#ifndef STASIS_DESCRIBE_H
#define STASIS_DESCRIBE_H
#include "stasis.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Returns how the library was built, for people and for reports of defects: "0.2.0 (gcc 12.2.0,
 * optimised, avx512, cuda)". These are its version; the compiler; "optimised" or "debug", and the
 * sanitizers in it; and which optional parts the build has: kernels for AVX-512 and AMX, and the
 * module for GPUs, which is a library of its own and may not be installed. A static string.
 * Thread-safe. */
const char *stasis_build(void);

/* Kinds of tokens. */
#define STASIS_TOKEN_NORMAL 1u  /* stands for its text */
#define STASIS_TOKEN_UNKNOWN 2u /* what the vocabulary has no token for */
#define STASIS_TOKEN_SPECIAL 3u /* marks structure; no plain text becomes it */
#define STASIS_TOKEN_UNUSED 5u  /* the model has a row for it, the tokenizer no text */
#define STASIS_TOKEN_BYTE 6u    /* one byte, spelled <0x0A>, of text that has no other token */

#define STASIS_TOKEN_ENDS 1u   /* ends replies: it is one of end_tokens of stasis_model_info */
#define STASIS_TOKEN_SCORED 2u /* the vocabulary gives it a score */

/* A token in its vocabulary. */
typedef struct stasis_token_info {
    uint32_t struct_size;
    uint32_t kind;     /* STASIS_TOKEN_NORMAL, ... */
    uint32_t flags;    /* STASIS_TOKEN_ENDS, STASIS_TOKEN_SCORED */
    float score;       /* a finite number: by SentencePiece, or GGUF's tokenizer.ggml.scores; 0
                          without STASIS_TOKEN_SCORED */
    const char *piece; /* as the vocabulary spells it, "\u2581Hello"; not zero-terminated, not
                          always UTF-8; valid until model and sessions are freed */
    size_t length;     /* of the piece in bytes; 0 for an unused token without a name */
} stasis_token_info;

/* Describes one token. Thread-safe.
 * Errors:
 *   INVALID_ARGUMENT  the token is outside the vocabulary of stasis_model_info
 *   UNSUPPORTED       the model has no tokenizer */
stasis_status stasis_model_get_token(const stasis_model *model, stasis_token token,
                                     stasis_token_info *info, stasis_error *error);

#define STASIS_METADATA_TEXT 1u     /* the value itself */
#define STASIS_METADATA_JSON 2u     /* a number, a boolean, null or an array, in JSON */
#define STASIS_METADATA_LEFT_OUT 3u /* too large: the value says what it is */

/* What a model's files say of it under one key. Pointers are valid until model and sessions are
 * freed. */
typedef struct stasis_metadata {
    uint32_t struct_size;
    uint32_t kind;     /* STASIS_METADATA_TEXT, ... */
    const char *key;   /* zero-terminated */
    const char *value; /* UTF-8, not zero-terminated; U+FFFD for bytes that are not */
    size_t length;     /* of the value, in bytes */
} stasis_metadata;

/* Returns the metadata of a key, and that of an index: 0, 1, ... in the order of the keys' bytes
 * until NOT_FOUND. Keys are
 *   of a GGUF file   those of the file, the first of several: "general.name",
 *                    "tokenizer.chat_template"
 *   of a directory   members of config.json, generation_config.json and tokenizer_config.json by
 *                    the file's name and theirs: "config.text_config.hidden_size"; and
 *                    "chat_template", the text of chat_template.jinja
 * Left out, with a value such as "an array of 262144 STRING" or "an object of 256 members", are
 * arrays of more than 256 elements, objects of more than 64 members within a file's, values of
 * more than 1 MiB, what exceeds 4 MiB together, and a file that is no JSON, for which the value is
 * the error. Keys of more than 1024 bytes, and those after 4 MiB of keys and values, are not there.
 * What a vocabulary has is told by stasis_model_get_token. Thread-safe.
 * NOT_FOUND: there is no such key, or index. */
stasis_status stasis_model_get_metadata(const stasis_model *model, const char *key,
                                        stasis_metadata *metadata, stasis_error *error);
stasis_status stasis_model_get_metadata_at(const stasis_model *model, size_t index,
                                           stasis_metadata *metadata, stasis_error *error);

/* Memory of one session that shares no page, in bytes. A session of n positions is planned with
 * kv_bytes + state_bytes + log_bytes + tracking_bytes + fixed_bytes; while an append runs, with
 * kv_most_bytes in place of kv_bytes, with a further recurrent state, and with the workspace
 * (scratch_bytes of stasis_model_stats), which the sessions of a model use in turn, one for each
 * call that runs at the same time. Pages that sessions of a domain share count once for all of
 * them; evicted ones do not count; a rewind takes nothing. What an MTP head takes is in
 * scratch_bytes. */
typedef struct stasis_session_memory {
    uint32_t struct_size, page_positions; /* memory is taken for whole pages of so many */
    uint64_t kv_bytes; /* pages that it holds between calls: what it adds to kv_used_bytes of
                          stasis_model_stats */
    uint64_t kv_most_bytes; /* never more than this on the way there, if no more than 512 of its
                               positions are computed at once, as is the default (schedulers may
                               take 1024): layers with a window release pages only after the
                               positions that see them were computed */
    uint64_t position_bytes; /* keys and values of one position, in all layers together */
    uint64_t global_position_bytes; /* of it in layers without a window, all of which keep growing;
                                       the others hold no more than their window, window_retain and
                                       the rest of two pages */
    uint64_t states;         /* recurrent states: the last, and checkpoints; at most as many as
                                state_budget_bytes allows, or two */
    uint64_t state_bytes;    /* of them */
    uint64_t log_bytes;      /* of the allocator: tokens, and tables of pages */
    uint64_t tracking_bytes; /* of the C++ heap, as the next: sums of attention, if tracked */
    uint64_t fixed_bytes;    /* whatever its length: the final hidden state, and logits once it was
                                asked for them */
} stasis_session_memory;

/* Returns what a session of these options takes when it has so many positions. Nothing is taken or
 * computed, so that a host can ask how many sessions fit. Ignores `reserve`. Thread-safe.
 * Errors:
 *   INVALID_ARGUMENT  the positions exceed the capacity, or that the context
 *   UNSUPPORTED       as stasis_session_create */
stasis_status stasis_model_session_memory(const stasis_model *model,
                                          const stasis_session_options *options, uint64_t positions,
                                          stasis_session_memory *memory, stasis_error *error);

/* A model that is not open, by what its files say. */
typedef struct stasis_estimate {
    uint32_t struct_size, layers;
    char architecture[32]; /* zero-terminated, as weight_types */
    uint32_t hidden, vocabulary;
    uint64_t context;
    uint64_t parameters;      /* numbers in the model's tensors, without the MTP head's */
    uint64_t weight_bytes;    /* as in stasis_model_info */
    uint64_t mtp_bytes;       /* the same */
    uint64_t file_bytes;      /* of all files of weights */
    uint64_t mapped_bytes;    /* weights used in mapped files, which the system reads when they are
                                 needed, may drop, and shares between processes */
    uint64_t allocated_bytes; /* what opening takes of the allocator and keeps: copied weights, to
                                 the byte */
    uint64_t heap_bytes;      /* of the C++ heap for norms and biases */
    uint64_t workspace_bytes; /* what the first call that computes 512 positions takes of the
                                 allocator; attention adds to it as contexts grow, and so do the
                                 inputs of experts */
    char weight_types[256];   /* as in stasis_model_info, cut if it is longer */
} stasis_estimate;

/* Estimates what stasis_model_open would take, and a session of `positions` positions in that
 * model. Reads the description and the headers of the weights' files, and none of the weights:
 * milliseconds, whatever their size. `options` are those of stasis_model_open, of which `threads`
 * or `thread_pool`, `kernels`, `copy_weights` and `state_budget_bytes` matter; `session_options`
 * and `positions` are those of stasis_model_session_memory. `session` may be NULL. Not counted: the
 * tokenizer, some 100 bytes of the C++ heap for each token, the chat template, and while opening up
 * to 17 MiB for each thread. Tokenizer and template are not read. Thread-safe.
 * Errors: those of stasis_model_open that show without reading weights and tokenizer (a later call
 * of it may still fail, with NONFINITE for example), those of stasis_model_session_memory, and
 *   UNSUPPORTED  a device other than "cpu" */
stasis_status stasis_model_estimate(const char *path, const stasis_model_options *options,
                                    const stasis_session_options *session_options,
                                    uint64_t positions, stasis_estimate *estimate,
                                    stasis_session_memory *session, stasis_error *error);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif /* STASIS_DESCRIBE_H */
