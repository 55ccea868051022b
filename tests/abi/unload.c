/* A host that loads the library when it needs it and unloads it afterwards, again and again: each
 * time it is gone, with its threads, and what it allocated has come back. Not linked to it. */
#include <dirent.h>
#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi/stasis.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)
/* POSIX lets a function's address pass through void *, ISO C does not say how. */
#define FIND(library, name)                                                                        \
    __typeof__(name) *call_##name;                                                                 \
    *(void **)&call_##name = dlsym(library, #name)

static int mapped(const char *name) {
    char line[4096];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        found = found || strstr(line, name) != NULL;
    }
    if (maps != NULL) {
        fclose(maps);
    }
    return found;
}

static int threads(void) {
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (tasks != NULL) {
        const struct dirent *entry = readdir(tasks);
        if (entry == NULL) {
            closedir(tasks);
            break;
        }
        count += entry->d_name[0] != '.';
    }
    return count;
}

static int use(void *library, const char *path, stasis_digest *digest) {
    const char *text = "What is k?";
    stasis_model *model = NULL;
    stasis_session *session = NULL;
    stasis_model_options options;
    stasis_generate_options generate;
    FIND(library, stasis_model_options_init);
    FIND(library, stasis_generate_options_init);
    FIND(library, stasis_model_open);
    FIND(library, stasis_model_close);
    FIND(library, stasis_session_create);
    FIND(library, stasis_session_free);
    FIND(library, stasis_session_append_message);
    FIND(library, stasis_session_generate);
    FIND(library, stasis_session_digest);
    call_stasis_model_options_init(&options, sizeof options);
    options.threads = 3;
    call_stasis_generate_options_init(&generate, sizeof generate);
    generate.tokens_max = 10;
    CHECK(call_stasis_model_open(path, &options, &model, NULL) == STASIS_OK);
    CHECK(call_stasis_session_create(model, NULL, &session, NULL) == STASIS_OK);
    CHECK(threads() >= 3);
    CHECK(call_stasis_session_append_message(session, "user", text, strlen(text),
                                             STASIS_MESSAGE_REPLY, NULL, NULL) == STASIS_OK);
    CHECK(call_stasis_session_generate(session, &generate, NULL, NULL) == STASIS_OK);
    CHECK(call_stasis_session_digest(session, digest, NULL) == STASIS_OK);
    call_stasis_session_free(session);
    call_stasis_model_close(model);
    return 0;
}

int main(int argc, char **argv) {
    enum { ROUNDS = 12, WARM = 4 };
    /* One arena without caches of threads' own: what is freed counts as free. */
    const char *tunables = "glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1";
    stasis_digest first, digest;
    size_t in_use = 0;
    if (getenv("GLIBC_TUNABLES") == NULL) {
        CHECK(setenv("GLIBC_TUNABLES", tunables, 1) == 0);
        execv(argv[0], argv);
        return 1;
    }
    CHECK(argc == 3); /* the library, a model */
    const int before = threads();
    for (int round = 0; round < ROUNDS; ++round) {
        CHECK(!mapped("libstasis.so"));
        void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        CHECK(library != NULL && mapped("libstasis.so"));
        CHECK(use(library, argv[2], round == 0 ? &first : &digest) == 0);
        CHECK(round == 0 || memcmp(&first, &digest, sizeof digest) == 0);
        CHECK(dlclose(library) == 0);
        CHECK(!mapped("libstasis.so"));
        CHECK(threads() == before);
        if (round == WARM) {
            in_use = mallinfo2().uordblks;
        }
    }
    const size_t grown = mallinfo2().uordblks > in_use ? mallinfo2().uordblks - in_use : 0;
    printf("loaded and unloaded %d times; the heap grew by %zu bytes in the last %d\n", ROUNDS,
           grown, ROUNDS - WARM - 1);
    CHECK(grown == 0);

    return 0;
}
