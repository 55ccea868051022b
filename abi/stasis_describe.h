/* Stasis: what the library and a model say of themselves. Part of stasis.h, which states the
 * conventions; include that. */
#ifndef STASIS_DESCRIBE_H
#define STASIS_DESCRIBE_H
#include "stasis.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Returns how the library was built, for people and for reports of defects: "0.1.0 (gcc 12.2.0,
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

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif /* STASIS_DESCRIBE_H */
