/* A host of an earlier release: compiled against the header before eviction, attention tracking,
 * speculation and traces (tests/abi/older), when eleven structs were shorter, and linked to today's
 * library. It does all that it could do then, and after each struct are bytes that no call may
 * change. */
#include <stdio.h>
#include <string.h>

#include "stasis.h"

#ifdef STASIS_TRACE_H
#error "this is today's header"
#endif

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: %s %s\n", __FILE__, __LINE__, #condition,                  \
                    stasis_status_name(error.status), error.message);                              \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)
#define OK(call) CHECK((call) == STASIS_OK)

/* A struct of the library and the bytes after it in the host's memory. */
#define GUARDED(type, name)                                                                        \
    struct {                                                                                       \
        type known;                                                                                \
        unsigned char behind[256];                                                                 \
    } name;                                                                                        \
    memset(&name, 0xA5, sizeof name);                                                              \
    name.known.struct_size = sizeof name.known
#define UNTOUCHED(name) CHECK(untouched(name.behind, sizeof name.behind))

static int untouched(const unsigned char *bytes, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        if (bytes[i] != 0xA5) {
            return 0;
        }
    }
    return 1;
}

static int32_t count_tokens(void *user, const stasis_generated *generated) {
    ++*(int *)user;
    return generated->length != 0 && generated->text == NULL;
}

static int describe(stasis_model *model) {
    stasis_error error = {0};
    GUARDED(stasis_model_info, info);
    GUARDED(stasis_model_stats, stats);
    OK(stasis_model_get_info(model, &info.known, &error));
    OK(stasis_model_get_stats(model, &stats.known, &error));
    CHECK(info.known.struct_size == sizeof info.known && info.known.vocabulary > 0);
    CHECK(stats.known.struct_size == sizeof stats.known);
    UNTOUCHED(info);
    UNTOUCHED(stats);
    return 0;
}

static int converse(stasis_session *session, int *heard) {
    const char *text = "Let's start by defining a variable k equal to 5. What is k?";
    stasis_error error = {0};
    GUARDED(stasis_sampling, sampling);
    GUARDED(stasis_generate_options, generate);
    GUARDED(stasis_generate_result, result);
    GUARDED(stasis_session_info, info);
    stasis_sampling_init(&sampling.known, sizeof sampling.known);
    sampling.known.temperature = 0.8F;
    sampling.known.top_p = 0.9F;
    sampling.known.seed = 7;
    OK(stasis_session_set_sampling(session, &sampling.known, &error));
    OK(stasis_session_append_message(session, "user", text, strlen(text), STASIS_MESSAGE_REPLY,
                                     NULL, &error));
    stasis_generate_options_init(&generate.known, sizeof generate.known);
    generate.known.tokens_max = 20;
    generate.known.flags = STASIS_GENERATE_IGNORE_END;
    generate.known.callback = count_tokens;
    generate.known.callback_user = heard;
    OK(stasis_session_generate(session, &generate.known, &result.known, &error));
    CHECK(result.known.count == 20 && *heard >= 20);
    OK(stasis_session_get_info(session, &info.known, &error));
    CHECK(info.known.position == result.known.begin + 20);
    UNTOUCHED(sampling);
    UNTOUCHED(generate);
    UNTOUCHED(result);
    UNTOUCHED(info);
    return 0;
}

static int prove(stasis_model *model, const char *path, stasis_session *session) {
    stasis_error error = {0};
    stasis_digest before, after;
    stasis_session *loaded = NULL;
    stasis_snapshot *snapshot = NULL;
    GUARDED(stasis_save_options, save);
    GUARDED(stasis_load_options, load);
    GUARDED(stasis_session_options, options);
    GUARDED(stasis_verify_options, verify);
    GUARDED(stasis_verify_report, report);
    GUARDED(stasis_snapshot_info, info);
    stasis_save_options_init(&save.known, sizeof save.known);
    save.known.flags = STASIS_SAVE_REPLACE;
    OK(stasis_session_save(session, path, &save.known, &error));
    OK(stasis_session_digest(session, &before, &error));
    stasis_session_options_init(&options.known, sizeof options.known);
    options.known.capacity = 500;
    stasis_load_options_init(&load.known, sizeof load.known);
    load.known.session = &options.known;
    OK(stasis_session_load(model, path, &load.known, &loaded, &error));
    OK(stasis_session_digest(loaded, &after, &error));
    stasis_session_free(loaded);
    CHECK(memcmp(&before, &after, sizeof before) == 0);
    OK(stasis_snapshot_open(path, &snapshot, &error));
    OK(stasis_snapshot_get_info(snapshot, &info.known, &error));
    stasis_verify_options_init(&verify.known, sizeof verify.known);
    OK(stasis_snapshot_verify(snapshot, model, &verify.known, &report.known, &error));
    stasis_snapshot_close(snapshot);
    CHECK(report.known.verified == 1 && report.known.positions == info.known.position);
    UNTOUCHED(save);
    UNTOUCHED(load);
    UNTOUCHED(options);
    UNTOUCHED(verify);
    UNTOUCHED(report);
    UNTOUCHED(info);
    return 0;
}

int main(int argc, char **argv) {
    const char *path = "test_abi_older.stasis";
    stasis_error error = {0};
    stasis_model *model = NULL;
    stasis_session *session = NULL;
    int heard = 0;
    GUARDED(stasis_model_options, options);
    GUARDED(stasis_session_options, room);
    CHECK(argc == 2);
    stasis_model_options_init(&options.known, sizeof options.known);
    options.known.threads = 2;
    OK(stasis_model_open(argv[1], &options.known, &model, &error));
    stasis_session_options_init(&room.known, sizeof room.known);
    room.known.capacity = 400;
    OK(stasis_session_create(model, &room.known, &session, &error));
    UNTOUCHED(options);
    UNTOUCHED(room);
    if (describe(model) != 0 || converse(session, &heard) != 0 ||
        prove(model, path, session) != 0) {
        return 1;
    }
    stasis_session_free(session);
    stasis_model_close(model);
    remove(path);
    printf("a host of an earlier header: %d tokens, saved, loaded, verified\n", heard);
    return 0;
}
