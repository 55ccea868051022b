// The stack that a calling thread needs: every kind of call on a thread that has exactly what
// stasis.h requires, between a protected page and painted memory that shows how deep each call
// went. (Sanitizers have larger frames.)
#include "tests/sanitizers.h"

#if !defined(STASIS_ADDRESS_SANITIZER) && !defined(STASIS_THREAD_SANITIZER)
#include <algorithm>
#include <exception>
#include <functional>

#include <pthread.h>
#include <sys/mman.h>

#include "tests/abi/fixture.h"
#include "tests/share.h"

using namespace abi_test;

namespace {

constexpr size_t kStackBytes = size_t{512} << 10; // as stasis.h says
constexpr size_t kGuardBytes = 64 << 10;
constexpr unsigned char kPaint = 0xA5;

struct StackWork {
    const std::function<void()> *body;
    std::exception_ptr failure;
};

void *run(void *data) {
    StackWork &work = *static_cast<StackWork *>(data);
    try {
        (*work.body)();
    } catch (...) {
        work.failure = std::current_exception();
    }
    return nullptr;
}

// Bytes of stack that a thread of this body used, what the C library keeps there included.
size_t stack_of(const std::function<void()> &body) {
    void *mapped = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(mapped != MAP_FAILED);
    REQUIRE(mprotect(mapped, kGuardBytes, PROT_NONE) == 0);
    auto *stack = static_cast<unsigned char *>(mapped) + kGuardBytes;
    std::memset(stack, kPaint, kStackBytes);
    pthread_attr_t attributes;
    pthread_t thread;
    StackWork work{&body, nullptr};
    REQUIRE(pthread_attr_init(&attributes) == 0);
    REQUIRE(pthread_attr_setstack(&attributes, stack, kStackBytes) == 0);
    REQUIRE(pthread_create(&thread, &attributes, run, &work) == 0);
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
    const auto *touched =
        std::find_if(stack, stack + kStackBytes, [](unsigned char byte) { return byte != kPaint; });
    const size_t used = static_cast<size_t>(stack + kStackBytes - touched);
    munmap(mapped, kGuardBytes + kStackBytes);
    if (work.failure) {
        std::rethrow_exception(work.failure);
    }
    return used;
}

// The deepest of all, and which it was.
struct Deepest {
    size_t bytes = 0;
    std::string name;

    void operator()(const std::string &what, const std::function<void()> &body) {
        const size_t used = stack_of([&] {
            INFO(what);
            body();
        });
        if (used > bytes) {
            bytes = used;
            name = what;
        }
    }
    ~Deepest() {
        MESSAGE(name << ": " << bytes << " bytes of stack");
        CHECK(bytes <= kStackBytes / 2); // so that a change is seen before it is a crash
    }
};

void ok(stasis_status status) {
    CHECK(status == STASIS_OK);
}

stasis_sampling everything_on() {
    auto sampling = sized<stasis_sampling>();
    sampling.temperature = 1.5F;
    sampling.top_k = 40;
    sampling.top_p = 0.9F;
    sampling.min_p = 0.01F;
    sampling.repetition_penalty = 1.2F;
    sampling.typical_p = 0.9F;
    sampling.top_n_sigma = 3;
    sampling.xtc_probability = 0.5F;
    sampling.dry_multiplier = 1;
    return sampling;
}

// Calls that change and read a session.
void talk(Deepest &deepest, const std::string &name, stasis_model *model, stasis_session *session) {
    deepest(name + ", append", [&] { append(session, some_tokens(150)); });
    deepest(name + ", message", [&] {
        const std::string text(300, 'k'); // refused by a model without a tokenizer
        stasis_session_append_message(session, "user", text.data(), text.size(),
                                      STASIS_MESSAGE_REPLY, nullptr, nullptr);
    });
    deepest(name + ", generate", [&] {
        const stasis_sampling sampling = everything_on();
        auto options = sized<stasis_generate_options>();
        options.flags = STASIS_GENERATE_IGNORE_END;
        options.tokens_max = 20;
        options.log_probability_count = 5;
        ok(stasis_session_set_sampling(session, &sampling, nullptr));
        const auto drafts = sized<stasis_draft_options>();
        ok(stasis_session_set_draft(session, nullptr, &drafts, nullptr));
        ok(stasis_session_generate(session, &options, nullptr, nullptr));
    });
    deepest(name + ", step", [&] {
        const Session forked = fork(session);
        stasis_step_item items[2] = {sized<stasis_step_item>(), sized<stasis_step_item>()};
        items[0].session = session;
        items[1].session = forked.get();
        items[0].flags = items[1].flags = STASIS_STEP_SAMPLE;
        ok(stasis_sessions_step(items, sizeof items[0], 2, nullptr, 0, nullptr, nullptr));
    });
    deepest(name + ", what is asked of a session", [&] {
        const Tokens tokens = some_tokens(9);
        std::vector<double> scores(tokens.size());
        std::vector<stasis_token> best(5);
        ok(stasis_session_score(session, tokens.data(), tokens.size(), scores.data(), nullptr,
                                nullptr));
        ok(stasis_session_top(session, best.size(), best.data(), nullptr, nullptr));
        digest(session);
        logits_of(session);
    });
    deepest(name + ", rewind and evict", [&] {
        ok(stasis_session_rewind(session, 160, STASIS_REWIND_RECOMPUTE, nullptr, nullptr));
        ok(stasis_session_evict(session, 64, 128, nullptr));
        append(session, some_tokens(5));
    });
    deepest(name + ", create with attention", [&] {
        auto options = sized<stasis_session_options>();
        options.capacity = 200;
        options.track_attention = STASIS_TRACK_BY_HEAD;
        stasis_session *tracked = nullptr;
        ok(stasis_session_create(model, &options, &tracked, nullptr));
        const Session owner(tracked);
        append(tracked, some_tokens(70));
    });
}

// Files, and what is looked up in them (as a report does).
void keep(Deepest &deepest, const std::string &name, stasis_model *model, stasis_session *session) {
    const Folder folder;
    for (const uint32_t kept : {STASIS_KEEP_FULL, STASIS_KEEP_NONE}) {
        const std::string file = folder.file(std::to_string(kept));
        const std::string what = name + (kept == STASIS_KEEP_FULL ? ", full" : ", without pages");
        deepest(what + ", save", [&] {
            ok(save_as(session, file, STASIS_CODEC_ZSTD, kept));
            append(session, some_tokens(3));
            ok(save_as(session, file, STASIS_CODEC_ZSTD, kept));
        });
        deepest(what + ", load",
                [&] { CHECK(digest(load(model, file).get()) == digest(session)); });
        deepest(what + ", look", [&] {
            const Snapshot snapshot = open_snapshot(file);
            std::string json(1 << 20, ' ');
            size_t length = 0;
            for (uint32_t element = 1; element <= 12; ++element) {
                ok(stasis_snapshot_element(snapshot.get(), element, json.data(), json.size(),
                                           &length, nullptr));
            }
        });
        deepest(what + ", verify", [&] {
            const Snapshot snapshot = open_snapshot(file);
            auto report = sized<stasis_verify_report>();
            ok(stasis_snapshot_verify(snapshot.get(), model, nullptr, &report, nullptr));
        });
        deepest(what + ", compact",
                [&] { ok(stasis_snapshot_compact(file.c_str(), nullptr, nullptr)); });
    }
}

// A text within a text, so many times.
struct Nest {
    const char *open, *close;

    std::string operator()(size_t depth, const std::string &inner) const {
        std::string text;
        for (size_t i = 0; i < depth; ++i) {
            text += open;
        }
        text += inner;
        for (size_t i = 0; i < depth; ++i) {
            text += close;
        }
        return text;
    }
};

// Whether it is refused or not: a template is run when the model is opened.
void open_only(Deepest &deepest, const std::string &model, const std::string &what) {
    deepest(what, [&] {
        stasis_model *opened = nullptr;
        stasis_model_open(model.c_str(), nullptr, &opened, nullptr);
        stasis_model_close(opened);
    });
}

} // namespace

TEST_CASE("stasis_model_open: a thread with the stack that the header asks for makes every call, "
          "on every model") {
    CHECK(read_file(source_folder() + "/abi/stasis.h")
              .find(" " + std::to_string(kStackBytes >> 10) + " KiB of stack") !=
          std::string::npos);
    Deepest deepest;
    size_t pairs = 0;
    for (const auto *name :
         {"recall-gemma3", "recall-llama", "zoo/gemma3-text", "zoo/gemma3-softcap-linear-rope",
          "zoo/llama-mha-bias-f16-sharded", "zoo/mistral-window", "zoo/qwen3-qknorm"}) {
        for (const std::string &kernels : kernel_tables()) {
            if (!stasis::test::taken(pairs++)) {
                continue;
            }
            Model model;
            const std::string what = std::string(name) + ", " + kernels;
            deepest(what + ", open", [&] {
                auto options = sized<stasis_model_options>();
                stasis_model *opened = nullptr;
                options.kernels = kernels.c_str();
                options.threads = 2;
                stasis_error error;
                if (stasis_model_open(test_data(name).c_str(), &options, &opened, &error) !=
                    STASIS_OK) {
                    CHECK(error.status == STASIS_UNSUPPORTED); // this machine has none of these
                }
                model.reset(opened);
            });
            if (model) {
                const Session session = create(model.get());
                talk(deepest, what, model.get(), session.get());
                keep(deepest, what, model.get(), session.get());
            }
        }
    }
}

TEST_CASE("stasis_model_quantize: a thread with the stack that the header asks for quantizes, and "
          "computes with blocks") {
    Deepest deepest;
    const Folder folder;
    for (const auto *type : {"Q4_K_M", "Q5_K_M", "Q4_0", "Q8_0"}) {
        const std::string file = folder.file(std::string(type) + ".gguf");
        deepest(std::string("quantize, ") + type, [&] {
            auto options = sized<stasis_quantize_options>();
            options.type = type;
            ok(stasis_model_quantize(test_data("recall-llama").c_str(), file.c_str(), &options,
                                     nullptr, nullptr));
        });
        Model model;
        deepest(std::string("open, ") + type, [&] { model = open_path(file); });
        const Session session = create(model.get());
        talk(deepest, type, model.get(), session.get());
        keep(deepest, type, model.get(), session.get());
    }
}

TEST_CASE("stasis_model_open: a thread with the stack that the header asks for opens what asks for "
          "deep recursion") {
    Deepest deepest;
    const Folder folder;
    const std::string model = folder.file("model"), chat = model + "/chat_template.jinja";
    std::filesystem::copy(test_data("recall-gemma3"), model);
    for (const size_t depth : {0, 1, 10, 60, 5000}) {
        for (const Nest &nest : {Nest{"(1 + ", ")"}, Nest{"f(", ")"}, Nest{"{'a': [", "]}"},
                                 Nest{"1 if ", " else 2"}, Nest{"x|default(", ")"}}) {
            for (const Nest &block : {Nest{"{{ ", " }}"}, Nest{"{% set y = ", " %}"},
                                      Nest{"{% for i in [", "] %}a{% endfor %}"}}) {
                // A macro that calls itself, until it is stopped.
                const std::string body = block(1, nest(depth, "f(n)"));
                write_file(chat, "{% macro f(n) %}" + body + "{% endmacro %}{{ f(1) }}");
                open_only(deepest, model, body.substr(0, 60));
            }
        }
        write_file(chat, Nest{"{% if 1 %}", "{% endif %}"}(depth, "1"));
        open_only(deepest, model, "blocks");
    }
    std::filesystem::remove(chat);
    std::filesystem::remove(model + "/tokenizer.model");
    const std::string json = read_file(test_data("byte-bpe/llama3/tokenizer.json"));
    const std::string key = "\"Regex\":\"";
    const size_t begin = json.find(key) + key.size(), end = json.find("\"}", begin);
    REQUIRE(json.find(key) != std::string::npos);
    for (const size_t depth : {1, 100, 240, 5000}) {
        for (const Nest &nest : {Nest{"(", ")"}, Nest{"(?:a|", ")*"}, Nest{"(?!a", ")"}}) {
            write_file(model + "/tokenizer.json",
                       json.substr(0, begin) + nest(depth, "x") + json.substr(end));
            open_only(deepest, model, "pattern " + nest(1, "x") + std::to_string(depth));
        }
    }
    const std::string config = read_file(model + "/config.json");
    write_file(model + "/config.json", "{\"a\": " + Nest{"[", "]"}(100000, "1") + "," +
                                           config.substr(config.find('{') + 1));
    open_only(deepest, model, "config.json");
}
#endif
