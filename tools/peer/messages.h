/* What the programs of this folder say on stderr: errors of llama.cpp, without the rest of its log,
 * and their own. */
#pragma once

#include <ggml.h>
#include <stdio.h>

/* For llama_log_set. */
static void quiet(enum ggml_log_level level, const char *text, void *user) {
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR) {
        fputs(text, stderr);
    }
}

/* Returns 0: not done. */
static int failed(const char *what) {
    fprintf(stderr, "peer: %s\n", what);
    return 0;
}
