/* Stasis: writing a model as a GGUF file, with its weights in a smaller type. Part of stasis.h,
 * which states the conventions; include that. No session and no opened model is needed or
 * affected. */
#ifndef STASIS_QUANTIZE_H
#define STASIS_QUANTIZE_H
#include "stasis.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define STASIS_QUANTIZE_REPLACE 1u /* replace a GGUF file that exists */

/* How a model is written. The types:
 *   F16, BF16
 *   Q8_0, Q4_0, Q4_1, Q5_0, Q5_1  blocks of 32 weights, with the scales of the published quantizer
 *   Q3_K, Q4_K, Q5_K, Q6_K        blocks of 256 weights, with scales of least squares
 *   Q4_K_M, Q5_K_M                Q4_K and Q5_K, with the value and down projections of half of
 *                                 the layers in Q6_K; query, key and value in one matrix, as in
 *                                 Phi-3, are in Q5_K and Q6_K
 *   Q2_K, Q3_K_M, Q3_K_L          Q2_K and Q3_K, with value, down and output projections in types
 *                                 of more bits
 *   IQ4_NL, IQ4_XS                blocks of 32 and of 256, four bits for one of 16 unequal steps;
 *                                 down projections of the first eighth of the layers are Q5_K, and
 *                                 values where four query heads or more share a key head
 *   MXFP4_MOE                     experts in MXFP4 (blocks of 32), everything else in Q8_0
 * Which matrices of a mixture have more bits is what llama's converter chooses for that name.
 * With every type smaller than Q8_0 the output head is Q6_K, and so are embeddings that serve as
 * head. A matrix whose rows are not whole blocks of 256 becomes Q4_0 (for Q2_K, Q3_K), Q5_0 (Q4_K),
 * Q5_1 (Q5_K), Q8_0 (Q6_K) or IQ4_NL (IQ4_XS), or F16 if they are not a multiple of 32. Norms and
 * biases are F32. */
typedef struct stasis_quantize_options {
    uint32_t struct_size, flags;
    const char *type;  /* one of the types above; NULL: Q8_0 */
    uint32_t threads;  /* threads that compute, the caller's included; 0: one per core */
    uint32_t reserved; /* 0 */
    stasis_cancel *cancel;
    stasis_progress_fn progress; /* bytes of weights read */
    void *progress_user;
    uint64_t timeout_ms; /* ends the call with TIMEOUT, see stasis_resources.h; 0: no limit */
} stasis_quantize_options;

#define STASIS_QUANTIZE_TYPES_MAX 16
/* The part of the file's tensors that are of one type. */
typedef struct stasis_quantize_share {
    char type[8];                    /* zero-terminated */
    uint64_t tensors, values, bytes; /* their number, their values, bytes in the file */
} stasis_quantize_share;

/* Outcome of a quantization, filled on success. */
typedef struct stasis_quantize_report {
    uint32_t struct_size, share_count;
    uint64_t source_bytes; /* bytes of the weights that were read */
    uint64_t file_bytes;   /* size of the file that was written */
    stasis_quantize_share shares[STASIS_QUANTIZE_TYPES_MAX]; /* types in use, the largest first */
} stasis_quantize_report;

/* Fills the struct with defaults, as every _init function of stasis.h. */
void stasis_quantize_options_init(stasis_quantize_options *options, size_t size);
/* Writes the Hugging Face directory `path` (see stasis_model_open) as the GGUF file `out`, whole or
 * not at all: it is written under another name in the same directory, synced and renamed. The file
 * includes description, tokenizer and chat template; a model with properties that GGUF cannot
 * express is refused. The bytes depend on the model and the type alone, not on threads or machine.
 * `report` may be NULL. Thread-safe: calls that write different files may run at once. After a
 * failure `out` is as before; if only the last sync failed (IO), the message says that the new file
 * is in place.
 *
 * Errors:
 *   INVALID_ARGUMENT  `out` exists, or is not a GGUF file that may be replaced
 *   UNSUPPORTED       the type, the architecture, a tensor, or a model that is a GGUF file already;
 *                     the message names it
 *   NONFINITE         a weight is not finite, or not in that type; the message names it
 *   NOT_FOUND         no such directory or file
 *   IO                a file operation failed, for example on a full disk
 *   CORRUPT           the bytes of a file contradict each other
 *   BUSY              another call is writing `out`
 *   CANCELLED, STOPPED */
stasis_status stasis_model_quantize(const char *path, const char *out,
                                    const stasis_quantize_options *options,
                                    stasis_quantize_report *report, stasis_error *error);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif /* STASIS_QUANTIZE_H */
