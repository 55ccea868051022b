// Callbacks that call the library: every kind of callback, every function in it. The object whose
// call is interrupted answers BUSY (in the callback of a generation only to calls that change it),
// all others work, the interrupted call ends as it would have,
// and nothing waits for ever: what takes longer than a minute ends the program.
#include <cstdlib>
#include <functional>
#include <utility>

#include <sys/wait.h>
#include <unistd.h>

#include "tests/abi/fixture.h"
#include "tests/sanitizers.h"
#include "tests/share.h"

using namespace abi_test;

namespace {

constexpr char kHostedModel[] = "zoo/gemma3-text";

// An action for a callback's n-th call.
struct CallingHost {
    std::function<void()> inner;
    int left = -1; // calls until then; negative: it does nothing
    void called() {
        if (left >= 0 && left-- == 0) {
            inner();
        }
    }
    static CallingHost &of(void *user) { return *static_cast<CallingHost *>(user); }
    static int32_t progress(void *user, uint64_t, uint64_t) {
        of(user).called();
        return 0;
    }
};

CallingHost &allocating() {
    static CallingHost host;
    return host;
}

stasis_status open_hosted(stasis_model **model, CallingHost *opening = nullptr) {
    auto allocator = sized<stasis_allocator>();
    allocator.allocate = [](void *, size_t size, size_t alignment) {
        allocating().called();
        return std::aligned_alloc(alignment, (size / alignment + 1) * alignment);
    };
    allocator.deallocate = [](void *, void *memory, size_t, size_t) { std::free(memory); };
    auto options = sized<stasis_model_options>();
    options.threads = 2;
    options.allocator = &allocator;
    options.progress = opening != nullptr ? CallingHost::progress : nullptr;
    options.progress_user = opening;
    return stasis_model_open(test_data(kHostedModel).c_str(), &options, model, nullptr);
}

struct World {
    Folder folder;
    Model model;
    Session own, other;
    std::string saved = folder.file("saved");
    CallingHost host;

    World() {
        stasis_model *opened = nullptr;
        REQUIRE(open_hosted(&opened) == STASIS_OK);
        model.reset(opened);
        own = session_of(opened, some_tokens(90));
        other = session_of(opened, some_tokens(90, 7));
        REQUIRE(save(other.get(), saved) == STASIS_OK);
    }
};

using Call = std::function<stasis_status(World &)>;
enum class Own { free, open, held }; // in the callback: open to calls that read
struct Outer {
    const char *name;
    Own own; // held: the call is own's
    Call call;
    CallingHost *(*host)(World &) = [](World &world) { return &world.host; };
};

const Tokens &more() {
    static const Tokens tokens = some_tokens(80, 3);
    return tokens;
}

stasis_status append_with(World &world, const stasis_run_options *options) {
    return stasis_session_append(world.own.get(), more().data(), more().size(), options, nullptr);
}

std::vector<Outer> appending() {
    return {
        {"append, progress", Own::held,
         [](World &world) {
             auto options = sized<stasis_run_options>();
             options.chunk = 16;
             options.progress = CallingHost::progress;
             options.progress_user = &world.host;
             return append_with(world, &options);
         }},
        {"append, logits", Own::held,
         [](World &world) {
             auto options = sized<stasis_run_options>();
             options.logits = [](void *user, uint64_t, const float *, size_t) {
                 return CallingHost::progress(user, 0, 0);
             };
             options.logits_user = &world.host;
             return append_with(world, &options);
         }},
        {"append, trace", Own::held,
         [](World &world) {
             auto trace = sized<stasis_trace_options>();
             const int left = std::exchange(world.host.left, -1); // not of what it had
             trace.flags = STASIS_TRACE_READS;
             trace.callback = [](void *user, const stasis_trace_event *) {
                 CallingHost::of(user).called();
             };
             trace.user = &world.host;
             REQUIRE(stasis_session_set_trace(world.own.get(), &trace, nullptr) == STASIS_OK);
             world.host.left = left;
             return append_with(world, nullptr);
         }},
        {"append, allocate", Own::held, [](World &world) { return append_with(world, nullptr); },
         [](World &) { return &allocating(); }},
        {"step, progress", Own::held,
         [](World &world) {
             auto item = sized<stasis_step_item>();
             item.session = world.own.get();
             item.count = more().size();
             auto options = sized<stasis_run_options>();
             options.chunk = 16;
             options.progress = CallingHost::progress;
             options.progress_user = &world.host;
             return stasis_sessions_step(&item, sizeof item, 1, more().data(), more().size(),
                                         &options, nullptr);
         }},
        {"generate", Own::open,
         [](World &world) {
             auto options = sized<stasis_generate_options>();
             options.tokens_max = 50;
             options.flags = STASIS_GENERATE_IGNORE_END;
             options.callback = [](void *user, const stasis_generated *) {
                 return CallingHost::progress(user, 0, 0);
             };
             options.callback_user = &world.host;
             return stasis_session_generate(world.own.get(), &options, nullptr, nullptr);
         }},
        {"the end of a trace", Own::held,
         [](World &world) {
             auto trace = sized<stasis_trace_options>();
             trace.queue_events = 10;
             trace.release = [](void *user) { CallingHost::of(user).called(); };
             trace.user = &world.host;
             REQUIRE(stasis_session_set_trace(world.own.get(), &trace, nullptr) == STASIS_OK);
             return stasis_session_set_trace(world.own.get(), nullptr, nullptr);
         }},
    };
}

std::vector<Outer> storing() {
    return {
        {"save, progress", Own::held,
         [](World &world) {
             auto options = sized<stasis_save_options>();
             options.progress = CallingHost::progress;
             options.progress_user = &world.host;
             return stasis_session_save(world.own.get(), world.folder.file("a").c_str(), &options,
                                        nullptr);
         }},
        {"write, sink", Own::held,
         [](World &world) {
             auto sink = sized<stasis_sink>();
             sink.write = [](void *user, const void *, size_t) {
                 return CallingHost::progress(user, 0, 0);
             };
             sink.user = &world.host;
             return stasis_session_write(world.own.get(), &sink, nullptr, nullptr);
         }},
    };
}

stasis_status embed(World &world) {
    auto input = sized<stasis_embed_input>();
    input.tokens = more().data();
    input.token_count = 70;
    auto options = sized<stasis_embed_options>();
    options.pooling = STASIS_POOLING_MEAN;
    options.progress = CallingHost::progress;
    options.progress_user = &world.host;
    std::vector<float> vector(1024);
    size_t count = 0;
    return stasis_model_embed(world.model.get(), &input, sizeof input, 1, &options, vector.data(),
                              vector.size(), &count, nullptr);
}

std::vector<Outer> loading() {
    return {
        {"load, progress", Own::free,
         [](World &world) {
             auto options = sized<stasis_load_options>();
             options.progress = CallingHost::progress;
             options.progress_user = &world.host;
             stasis_session *loaded = nullptr;
             const stasis_status status = stasis_session_load(
                 world.model.get(), world.saved.c_str(), &options, &loaded, nullptr);
             stasis_session_free(loaded);
             return status;
         }},
        {"read, source", Own::free,
         [](World &world) {
             using Stream = std::pair<CallingHost &, std::istringstream>;
             Stream stream(world.host, read_file(world.saved));
             auto source = sized<stasis_source>();
             source.read = [](void *user, void *data, size_t size) {
                 auto &[host, bytes] = *static_cast<Stream *>(user);
                 host.called();
                 bytes.read(static_cast<char *>(data),
                            std::min<long>(static_cast<long>(size), 5000));
                 return static_cast<int64_t>(bytes.gcount());
             };
             source.user = &stream;
             stasis_session *loaded = nullptr;
             const stasis_status status =
                 stasis_session_read(world.model.get(), &source, nullptr, &loaded, nullptr);
             stasis_session_free(loaded);
             return status;
         }},
        {"verify, progress", Own::free,
         [](World &world) {
             auto options = sized<stasis_verify_options>();
             options.chunk = 16;
             options.progress = CallingHost::progress;
             options.progress_user = &world.host;
             auto report = sized<stasis_verify_report>();
             return stasis_snapshot_verify(open_snapshot(world.saved).get(), world.model.get(),
                                           &options, &report, nullptr);
         }},
        {"open, progress", Own::free,
         [](World &world) {
             stasis_model *opened = nullptr;
             const stasis_status status = open_hosted(&opened, &world.host);
             stasis_model_close(opened);
             return status;
         }},
        {"quantize, progress", Own::free,
         [](World &world) {
             auto options = sized<stasis_quantize_options>();
             options.progress = CallingHost::progress;
             options.progress_user = &world.host;
             return stasis_model_quantize(test_data(kHostedModel).c_str(),
                                          world.folder.file("q.gguf").c_str(), &options, nullptr,
                                          nullptr);
         }},
        {"embed, progress", Own::free, embed},
    };
}

struct Inner {
    const char *name;
    std::function<stasis_status(World &, stasis_session *)> call; // null session: of none
};

std::vector<Inner> changing_calls() {
    return {
        {"append",
         [](World &, stasis_session *s) {
             return stasis_session_append(s, more().data(), 70, nullptr, nullptr);
         }},
        {"decode",
         [](World &, stasis_session *s) {
             stasis_token token = 0;
             return stasis_session_decode(s, &token, nullptr);
         }},
        {"generate",
         [](World &, stasis_session *s) {
             auto options = sized<stasis_generate_options>();
             options.tokens_max = 2;
             return stasis_session_generate(s, &options, nullptr, nullptr);
         }},
        {"begin",
         [](World &, stasis_session *s) {
             stasis_generation *generation = nullptr;
             const stasis_status status = stasis_generation_begin(s, nullptr, &generation, nullptr);
             stasis_generation_end(generation);
             return status;
         }},
        {"rewind",
         [](World &, stasis_session *s) {
             return stasis_session_rewind(s, 70, STASIS_REWIND_RECOMPUTE, nullptr, nullptr);
         }},
        {"evict",
         [](World &, stasis_session *s) { return stasis_session_evict(s, 3, 9, nullptr); }},
        {"step",
         [](World &, stasis_session *s) {
             auto item = sized<stasis_step_item>();
             item.session = s;
             item.count = 3;
             return stasis_sessions_step(&item, sizeof item, 1, more().data(), 3, nullptr, nullptr);
         }},
        {"set sampling",
         [](World &, stasis_session *s) {
             return stasis_session_set_sampling(s, nullptr, nullptr);
         }},
        {"set draft",
         [](World &, stasis_session *s) {
             return stasis_session_set_draft(s, nullptr, nullptr, nullptr);
         }},
    };
}

std::vector<Inner> reading_calls() {
    return {
        {"score",
         [](World &, stasis_session *s) {
             double scores[3];
             return stasis_session_score(s, more().data(), 3, scores, nullptr, nullptr);
         }},
        {"set trace",
         [](World &, stasis_session *s) { return stasis_session_set_trace(s, nullptr, nullptr); }},
        {"save",
         [](World &world, stasis_session *s) { return save(s, world.folder.file("inner")); }},
        {"fork",
         [](World &, stasis_session *s) {
             stasis_session *child = nullptr;
             const stasis_status status = stasis_session_fork(s, &child, nullptr);
             stasis_session_free(child);
             return status;
         }},
        {"digest",
         [](World &, stasis_session *s) {
             stasis_digest digest;
             return stasis_session_digest(s, &digest, nullptr);
         }},
        {"logits",
         [](World &, stasis_session *s) {
             std::vector<float> logits(100000);
             size_t count = 0;
             return stasis_session_logits(s, logits.data(), logits.size(), &count, nullptr);
         }},
        {"sample",
         [](World &, stasis_session *s) {
             stasis_token token = 0;
             return stasis_session_sample(s, &token, nullptr);
         }},
        {"tokens",
         [](World &, stasis_session *s) {
             stasis_token tokens[1000];
             size_t count = 0;
             return stasis_session_tokens(s, 0, tokens, nullptr, 1000, &count, nullptr);
         }},
        {"kv",
         [](World &, stasis_session *s) {
             std::vector<uint16_t> keys(10000), values(10000);
             size_t count = 0;
             return stasis_session_kv(s, 0, 80, 81, keys.data(), values.data(), keys.size(), &count,
                                      nullptr);
         }},
        {"info",
         [](World &, stasis_session *s) {
             auto info = sized<stasis_session_info>();
             return stasis_session_get_info(s, &info, nullptr);
         }},
    };
}

// Calls on the model, or before any object exists.
std::vector<Inner> other_calls() {
    return {
        {"model's stats",
         [](World &world, stasis_session *) {
             auto stats = sized<stasis_model_stats>();
             return stasis_model_get_stats(world.model.get(), &stats, nullptr);
         }},
        {"create",
         [](World &world, stasis_session *) {
             return create(world.model.get()) != nullptr ? STASIS_OK : STASIS_INTERNAL;
         }},
        {"load",
         [](World &world, stasis_session *) {
             stasis_session *loaded = nullptr;
             const stasis_status status = stasis_session_load(
                 world.model.get(), world.saved.c_str(), nullptr, &loaded, nullptr);
             stasis_session_free(loaded);
             return status;
         }},
        {"verify",
         [](World &world, stasis_session *) {
             auto report = sized<stasis_verify_report>();
             return stasis_snapshot_verify(open_snapshot(world.saved).get(), world.model.get(),
                                           nullptr, &report, nullptr);
         }},
        {"open and close",
         [](World &, stasis_session *) {
             stasis_model *opened = nullptr;
             const stasis_status status = open_hosted(&opened);
             stasis_model_close(opened);
             return status;
         }},
        {"free another",
         [](World &world, stasis_session *) {
             world.other.reset();
             return STASIS_OK;
         }},
#ifndef STASIS_THREAD_SANITIZER // which cannot follow a process that forks while it has threads
        {"fork the process",
         [](World &world, stasis_session *) {
             const pid_t child = ::fork();
             if (child == 0) {
                 alarm(20);
                 _exit(
                     stasis_session_append(world.other.get(), more().data(), 70, nullptr, nullptr));
             }
             int status = -1;
             waitpid(child, &status, 0);
             return status == 0 ? STASIS_OK : STASIS_INTERNAL;
         }},
#endif
    };
}

enum class Whose { own, other, none };

// The state of own after the call, whose callback does `inner` at its n-th call; whether it did.
bool attempt(const Outer &outer, const Inner *inner, bool changes, Whose whose, int n,
             Digest &after) {
    World world;
    CallingHost &host = *outer.host(world);
    stasis_status inside = STASIS_INTERNAL;
    bool done = false;
    host.inner = [&] {
        done = true;
        if (inner != nullptr) {
            inside =
                inner->call(world, whose == Whose::other ? world.other.get() : world.own.get());
        }
    };
    host.left = n;
    alarm(60);
    const stasis_status status = outer.call(world);
    alarm(0);
    host.left = -1;
    CHECK(status == STASIS_OK);
    if (done && inner != nullptr) {
        const bool busy =
            whose == Whose::own && (outer.own == Own::held || (outer.own == Own::open && changes));
        CHECK_MESSAGE(inside == (busy ? STASIS_BUSY : STASIS_OK), stasis_status_name(inside));
    }
    after = digest(world.own.get());
    host.inner = nullptr;
    return done;
}

void attempt_all(const std::vector<Outer> &outers) {
    size_t pairs = 0;
    for (const Outer &outer : outers) {
        CAPTURE(outer.name);
        Digest expected{}, after{};
        const bool calls = attempt(outer, nullptr, false, Whose::none, 0, expected);
        CHECK(calls);
        const auto each = [&](const std::vector<Inner> &inners, bool changes, Whose whose) {
            int n = 0; // the first call of a callback, and the second
            for (const Inner &inner : inners) {
                if (!stasis::test::taken(pairs++)) {
                    continue;
                }
                CAPTURE(inner.name);
                CAPTURE(static_cast<int>(whose));
                attempt(outer, &inner, changes, whose, n, after);
                CHECK((after == expected || (outer.own == Own::free && whose == Whose::own)));
                n = 1 - n;
            }
        };
        for (const Whose whose : {Whose::own, Whose::other}) {
            each(changing_calls(), true, whose);
            each(reading_calls(), false, whose);
        }
        each(other_calls(), false, Whose::none);
        if (outer.own != Own::free) { // else the call may be the model's
            each({{"close the model",
                   [](World &world, stasis_session *) {
                       world.model.reset();
                       return STASIS_OK;
                   }}},
                 false, Whose::none);
        }
    }
}

} // namespace

TEST_CASE("stasis.h: callbacks that call: appending, steps and generating") {
    attempt_all(appending());
}

TEST_CASE("stasis.h: callbacks that call: saving, loading, verifying, opening, quantizing") {
    attempt_all(storing());
    attempt_all(loading());
}
