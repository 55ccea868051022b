/* Stasis: threads that models share, the time of calls, and models from other places than paths.
 * Part of stasis.h, which states the conventions; include that. */
#ifndef STASIS_RESOURCES_H
#define STASIS_RESOURCES_H
#include "stasis.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- Threads that models share -----------------------------------------------------------------
 * A model starts threads of its own when it is opened, unless it is given a pool (`thread_pool` of
 * stasis_model_options). Any number of models may have the same one: then the process has its
 * threads, and no others, however many models are open. Results do not depend on it.
 *
 * Passes of several models, or of several sessions, may run at once, and no call waits for another:
 * the calling thread always computes, and at each step of a pass one of the calls has the pool to
 * help it, while the others compute this step alone. A draft model may have the pool of the model
 * that it drafts for. */
/* How a pool is made. A struct of zeros is all defaults. */
typedef struct stasis_threads_options {
    uint32_t struct_size;
    uint32_t count;       /* threads that compute, the caller's included: count - 1 are started. At
                             most 1024; 0: one for each of `cpus`, or else one per core */
    const uint32_t *cpus; /* numbers of the CPUs on any of which the started threads run, each once;
                             none: those of the thread that creates the pool. Calling threads run
                             where their host lets them */
    size_t cpu_count;
    const char *name; /* of the started threads, followed by their number from 1 on: 15 bytes at
                         most together; NULL: the name of the thread that creates the pool */
} stasis_threads_options;

/* Fills the struct with defaults, as every _init function of stasis.h. */
void stasis_threads_options_init(stasis_threads_options *options, size_t size);
/* Starts the threads of a pool. They sleep while nothing is computed, and take no signals. A child
 * of fork() may use the pool, and models that have it: there calling threads compute alone.
 * Thread-safe.
 * Errors:
 *   INVALID_ARGUMENT  too many threads; a CPU that this process may not run on, or that is given
 *                     twice; a name that is too long or empty
 *   NO_MEMORY         the system does not start as many threads; none is left then */
stasis_status stasis_threads_create(const stasis_threads_options *options, stasis_threads **threads,
                                    stasis_error *error);
/* Releases the pool, at any time. Its threads end with the last model that has it, or at once.
 * Thread-safe. */
void stasis_threads_free(stasis_threads *threads);

/* ---- The time of a call ------------------------------------------------------------------------
 * Options that have a cancel handle have `timeout_ms`: so many milliseconds after the call began it
 * ends with TIMEOUT. Time is that of CLOCK_MONOTONIC. Everything else is as with CANCELLED: what an
 * append has not finished is undone, a save leaves the file as it was, and the clock is looked at
 * where the cancel handle is. An append looks before each layer of each pass, so that a call ends
 * within about a layer of up to `chunk` positions after its time; other calls look more often. A
 * GPU looks before a pass.
 *
 * A generation has its time for all of its tokens, from the call that begins it on: generate,
 * stasis_generation_begin, or stasis_scheduler_submit. It is looked at between tokens: one that has
 * begun is finished, those that were delivered stay, and the text that was held back comes with the
 * last event. The generation is over then: stop_reason is STASIS_STOP_TIMEOUT, and the session can
 * be used at once. In a scheduler, where it is looked at between passes, a session whose time ends
 * during its prompt is as before submit. */

/* ---- Models from other places than paths ----------------------------------------------------- */
/* Files that a host gives by their names: of an archive, an object store, in memory. Both
 * functions run on the thread that opens the model, during that call and never after it; `user` is
 * passed on unchanged. */
typedef struct stasis_model_source {
    uint32_t struct_size, reserved;
    /* Returns the size of a file in bytes, the same at every call; -1: there is none of this name;
     * another negative number: it cannot be told, which ends the call with IO. */
    int64_t (*size)(void *user, const char *name);
    /* Stores bytes of a file, from an offset on, in `data`: returns how many, at least one and at
     * most `size_bytes`. A negative number ends the call with IO. So does 0, for no more is asked
     * for than a file has by its size; more than `size_bytes` ends it with INVALID_ARGUMENT. */
    int64_t (*read)(void *user, const char *name, uint64_t offset, void *data, size_t size_bytes);
    void *user;
} stasis_model_source;

/* Opens a model whose files a source gives. `name` is that of a GGUF file (of a split model, the
 * first); NULL: the source has the files of a Hugging Face directory, by their names in it
 * ("config.json"; of a model that makes vectors also "1_Pooling/config.json" and the like). The
 * model is the one that stasis_model_open makes of the same files: same digests, same bits.
 *
 * All weights are copied to the allocator's memory, as with copy_weights, and hashed: no digest is
 * taken from the cache directory, nor left there. The calling thread alone reads and hashes them,
 * in pieces of about 1 MiB, rising within each tensor, and integer matrices twice. Beside the
 * weights, texts and heads of files, the call takes some 16 MiB. Before each read the cancel handle
 * and the time are looked at.
 * Errors:
 *   statuses of stasis_model_open
 *   NOT_FOUND         the source has no file of this name
 *   IO                a function failed, or a size changed; the message names file and offset
 *   INVALID_ARGUMENT  read returned more than it was asked for */
stasis_status stasis_model_open_source(const stasis_model_source *source, const char *name,
                                       const stasis_model_options *options, stasis_model **model,
                                       stasis_error *error);
/* Opens the GGUF file that a descriptor refers to, wherever the descriptor's offset is; the file
 * needs no name. The library takes a descriptor of its own, so the host may close its one at once.
 * Files are mapped, as by stasis_model_open, whose statuses it returns.
 * INVALID_ARGUMENT: the descriptor is not open. IO: it is not open for reading, or not a regular
 * file. UNSUPPORTED: the model is split over several files. */
stasis_status stasis_model_open_descriptor(int32_t descriptor, const stasis_model_options *options,
                                           stasis_model **model, stasis_error *error);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif /* STASIS_RESOURCES_H */
