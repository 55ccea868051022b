/* Stasis: modules, shared libraries that bring the backend of a store (stasis_store.h). For those
 * who write one; a host that opens stores does not need this header. */
#ifndef STASIS_MODULE_H
#define STASIS_MODULE_H
#ifndef STASIS_H
#error "stasis.h is to be included first"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* stasis_store_open, asked for a scheme that it does not know itself, loads the module
 * libstasis_SCHEME.so.0, from its own folder or else as the loader finds libraries, and calls the
 * function in it that has this name. A scheme has 1 to 16 characters of a-z and 0-9. The module
 * stays loaded until the process ends. */
#define STASIS_STORE_MODULE_ENTRY "stasis_store_module_1"

/* What a module is asked, and what the library lends it. The functions stay valid. */
typedef struct stasis_store_module_request {
    uint32_t struct_size, flags; /* STASIS_STORE_EXISTING */
    const char *uri;             /* as it was given, with its scheme; until the entry returns */
    /* Whether the library's call that this thread is in for the module should end: CANCELLED or
     * TIMEOUT, which the module's function returns soon; else OK. */
    stasis_status (*look)(void);
    /* Says why the module's function is about to return a failure: UTF-8, copied. Without it the
     * host reads the status alone. */
    void (*explain)(const char *message);
} stasis_store_module_request;

/* Opens the store: fills the fields of `backend` that are within its struct_size, which is set (an
 * older library lacks the last ones), and `name`, a zero-terminated text that tells backends apart
 * (stasis_store_open_backend). Returns OK, or a status of stasis_store_open with the reason by
 * `explain`. */
typedef stasis_status (*stasis_store_module_fn)(const stasis_store_module_request *request,
                                                stasis_store_backend *backend, char *name,
                                                size_t name_capacity);

#ifdef __cplusplus
}
#endif
#endif /* STASIS_MODULE_H */
