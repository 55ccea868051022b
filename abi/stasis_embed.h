/* Stasis: embeddings, texts as vectors. Part of stasis.h, which states the conventions; include
 * that. No session is needed or affected. */
#ifndef STASIS_EMBED_H
#define STASIS_EMBED_H
#include "stasis.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* What a text's final hidden states give. */
#define STASIS_POOLING_LAST 1u /* that of the last token */
#define STASIS_POOLING_MEAN 2u /* the mean of all tokens' */

/* How the model's files say that texts become vectors: modules.json, config.json of its pooling
 * module, config.json and model.safetensors of dense layers after it,
 * config_sentence_transformers.json and sentence_bert_config.json beside the model, or the metadata
 * of a GGUF file, whose vectors are normalised and which has no prompts. Pointers are into the
 * model. A model whose attention looks both ways (EmbeddingGemma) makes embeddings alone: functions
 * that make a session of it return UNSUPPORTED. */
typedef struct stasis_embed_info {
    uint32_t struct_size;
    uint32_t pooling;    /* STASIS_POOLING_...; 0: the files do not say, or `refusal` */
    uint32_t dimension;  /* numbers of a vector */
    uint32_t normalised; /* 1: the L2 norm of a vector is 1 */
    uint64_t tokens_max; /* of a text, tokens around it included */
    uint32_t contract;   /* version of the numerics contract's part on embeddings (C13) */
    uint32_t prompt_count;
    const char *const *prompt_names; /* [prompt_count], ascending */
    const char *const *prompts;      /* [prompt_count]: texts to put before a text */
    const char *default_prompt;      /* the name of the one in use if none is asked for; "": none */
    const char *refusal;             /* what the files ask for that is not supported; "": nothing */
} stasis_embed_info;

/* What one vector is made of, read during the call: a text, or tokens as they are. */
typedef struct stasis_embed_input {
    uint32_t struct_size, reserved;
    /* A prompt is put before the text, and the tokens around it that the model's own tokenizer puts
     * there (bos, an end token). Markers in it are plain text. NULL: `tokens`. */
    const char *text;
    size_t length;
    const stasis_token *tokens; /* with `text` NULL */
    size_t token_count;
} stasis_embed_input;

/* How vectors are made. Nothing from `chunk` on influences them. */
typedef struct stasis_embed_options {
    uint32_t struct_size;
    uint32_t pooling;   /* STASIS_POOLING_...; 0: as the files say */
    const char *prompt; /* the name of one of the model's prompts; NULL: the default one */
    uint32_t chunk;     /* positions computed together; 0: chosen; attention both ways: ignored */
    uint32_t reserved;  /* 0 */
    stasis_cancel *cancel;
    stasis_progress_fn progress; /* positions of this call */
    void *progress_user;
    uint64_t timeout_ms; /* ends the call with TIMEOUT, see stasis_resources.h; 0: no limit */
} stasis_embed_options;

/* Fills the struct with defaults, as every _init function of stasis.h. */
void stasis_embed_options_init(stasis_embed_options *options, size_t size);
/* Describes how the model makes vectors. Thread-safe. */
stasis_status stasis_model_get_embed_info(const stasis_model *model, stasis_embed_info *info,
                                          stasis_error *error);
/* Makes a vector of each input, in `vectors` [inputs][dimension]; `capacity` and `*count` are
 * numbers. `stride` is the distance between inputs in bytes. A vector is a function of the model,
 * its tokens and the pooling alone: whatever is beside it in the call, and whatever threads,
 * kernels or chunks compute it, it has the same bits (NUMERICS.md, C13).
 *
 * All inputs are tokenized and checked before the first is computed; a longer text than the model
 * takes is refused, not cut. Short texts are computed together. The call holds KV pages for 4096
 * positions, or for the longest text, whatever the number of texts. Thread-safe.
 *
 * Errors, which name the input where one is the cause:
 *   INVALID_ARGUMENT  a text that is not UTF-8, an input without tokens or with more than
 *                     tokens_max, a token outside the vocabulary, a prompt that the model has not
 *   UNSUPPORTED       the files do not say how to pool, or ask for what is not supported (the
 *                     message names it), and the options do not say either; a text for a model
 *                     without a tokenizer
 *   BUFFER_TOO_SMALL  before anything is computed
 *   POOL_EXHAUSTED    the KV budget does not allow for one of the texts
 *   NONFINITE         a NaN or infinity was computed
 *   IO                the model's files changed
 *   CANCELLED, STOPPED */
stasis_status stasis_model_embed(const stasis_model *model, const stasis_embed_input *inputs,
                                 size_t stride, size_t input_count,
                                 const stasis_embed_options *options, float *vectors,
                                 size_t capacity, size_t *count, stasis_error *error);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif /* STASIS_EMBED_H */
