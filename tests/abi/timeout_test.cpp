// The time of calls: each ends with TIMEOUT as it would when cancelled, and generations for good.
// Callbacks wait until the time is over, so that nothing here depends on the machine's speed.
#include <chrono>
#include <functional>
#include <thread>

#include "tests/abi/scheduled.h"

using namespace abi_test;

namespace {

constexpr uint64_t kTimeoutMs = 5;
constexpr uint64_t kLongMs = 2000; // some tokens take less, also where a machine stands still
const char *const kModel = "recall-gemma3";

void wait_it_out() {
    std::this_thread::sleep_for(std::chrono::milliseconds(kTimeoutMs + 1));
}

int32_t waiting_progress(void *, uint64_t, uint64_t) {
    wait_it_out();
    return 0;
}

// Options whose time is over when progress was reported once.
template <typename Options> Options short_of_time() {
    auto options = sized<Options>();
    options.timeout_ms = kTimeoutMs;
    options.progress = waiting_progress;
    return options;
}

// Options with time enough.
template <typename Options> Options with_time() {
    auto options = sized<Options>();
    options.timeout_ms = UINT64_MAX;
    return options;
}

stasis_error error_of(const std::function<stasis_status(stasis_error *)> &call) {
    stasis_error error{};
    const stasis_status status = call(&error);
    CHECK(status == error.status);
    return error;
}

#define TIMES_OUT(call)                                                                            \
    do {                                                                                           \
        const stasis_error ended = error_of([&](stasis_error *error) { return call; });            \
        CHECK_MESSAGE(ended.status == STASIS_TIMEOUT, #call, ": ", ended.message);                 \
        CHECK_MESSAGE(contains(ended, "time was over"), ended.message);                            \
    } while (false)

// What a callback heard; it waits after the third token.
struct Listener {
    Tokens tokens;
    std::string text;
    bool last = false;

    static int32_t hear(void *user, const stasis_generated *generated) {
        auto &own = *static_cast<Listener *>(user);
        own.text.append(generated->text, generated->length);
        if (generated->last != 0) {
            own.last = true;
        } else {
            own.tokens.push_back(generated->token);
        }
        if (own.tokens.size() == 3) {
            wait_it_out();
        }
        return 0;
    }
};

stasis_generate_options of_three(const char *const *stop) {
    auto options = sized<stasis_generate_options>();
    options.tokens_max = 20;
    options.flags = STASIS_GENERATE_IGNORE_END;
    options.stop_strings = stop;
    options.stop_string_count = stop != nullptr ? 1 : 0;
    options.timeout_ms = kLongMs; // three tokens take less, with callbacks that sleep
    return options;
}

} // namespace

TEST_CASE("stasis_session_append: whose time is over leaves the session as before, and ends within "
          "the pass") {
    stasis_model *model = shared_model(kModel);
    const Tokens begin = some_tokens(70), more = some_tokens(900, 2);
    const Session session = session_of(model, begin);
    const Digest before = digest(session.get());
    const Cancel cancel = make_cancel();
    auto options = short_of_time<stasis_run_options>();
    options.chunk = 16;
    options.cancel = cancel.get();
    TIMES_OUT(stasis_session_append(session.get(), more.data(), more.size(), &options, error));
    uint64_t done = 0, total = 0;
    stasis_cancel_progress(cancel.get(), &done, &total);
    CHECK(done == 0); // not a pass was finished
    CHECK(total == 900);
    CHECK(digest(session.get()) == before);
    // A request to cancel comes before the time.
    stasis_cancel_request(cancel.get());
    CHECK(stasis_session_append(session.get(), more.data(), more.size(), &options, nullptr) ==
          STASIS_CANCELLED);
    auto whole = with_time<stasis_run_options>();
    CHECK(stasis_session_append(session.get(), more.data(), more.size(), &whole, nullptr) ==
          STASIS_OK);
    CHECK(digest(session.get()) == digest(session_of(model, joined(begin, more)).get()));
}

TEST_CASE(
    "stasis_session_append: a time of some milliseconds ends a prefill of thousands of tokens "
    "without any callback") {
    stasis_model *model = shared_model(kModel);
    Tokens tokens = some_tokens(3000);
    const Session session = create(model);
    auto options = sized<stasis_run_options>();
    options.timeout_ms = 1; // for what takes at least some hundred
    const auto begin = std::chrono::steady_clock::now();
    TIMES_OUT(stasis_session_append(session.get(), tokens.data(), tokens.size(), &options, error));
    CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(1));
    CHECK(position(session.get()) == 0);
}

TEST_CASE("stasis_run_options: rewind, score, messages and steps end when their time is over") {
    stasis_model *model = shared_model(kModel);
    const Tokens all = some_tokens(700), few = some_tokens(40, 3);
    const Session session = session_of(model, all, STASIS_WINDOW_RETAIN_NONE);
    const Digest before = digest(session.get());
    const auto options = short_of_time<stasis_run_options>();
    TIMES_OUT(stasis_session_rewind(session.get(), 500, STASIS_REWIND_RECOMPUTE, &options, error));
    CHECK(digest(session.get()) == before);
    std::vector<double> scores(few.size());
    TIMES_OUT(stasis_session_score(session.get(), few.data(), few.size(), scores.data(), &options,
                                   error));
    CHECK(digest(session.get()) == before);
    const Session talk = create(model);
    TIMES_OUT(stasis_session_append_message(talk.get(), "user", "What is k?", 10,
                                            STASIS_MESSAGE_REPLY, &options, error));
    CHECK(position(talk.get()) == 0);

    stasis_step_item items[2] = {sized<stasis_step_item>(), sized<stasis_step_item>()};
    const Session other = session_of(model, few);
    items[0].session = session.get();
    items[0].count = few.size();
    items[1].session = other.get();
    items[1].flags = STASIS_STEP_SAMPLE;
    const Digest of_other = digest(other.get());
    TIMES_OUT(
        stasis_sessions_step(items, sizeof items[0], 2, few.data(), few.size(), &options, error));
    CHECK(items[0].status == STASIS_TIMEOUT);
    CHECK(items[1].status == STASIS_TIMEOUT);
    CHECK(digest(session.get()) == before);
    CHECK(digest(other.get()) == of_other);
}

TEST_CASE("stasis_save_options: save, write, compact, load, read and verify end when their time is "
          "over, and make and change nothing") {
    stasis_model *model = shared_model(kModel);
    const Folder folder;
    const std::string path = folder.file("a");
    const Session session = session_of(model, some_tokens(700));
    const auto saving = short_of_time<stasis_save_options>();
    TIMES_OUT(stasis_session_save(session.get(), path.c_str(), &saving, error));
    CHECK(std::filesystem::is_empty(std::filesystem::path(path).parent_path()));
    const auto whole = with_time<stasis_save_options>();
    REQUIRE(stasis_session_save(session.get(), path.c_str(), &whole, nullptr) == STASIS_OK);
    const std::string bytes = read_file(path);
    append(session.get(), some_tokens(300, 2));
    TIMES_OUT(stasis_session_save(session.get(), path.c_str(), &saving, error));
    TIMES_OUT(stasis_snapshot_compact(path.c_str(), &saving, error));
    auto sink = sized<stasis_sink>();
    sink.write = [](void *, const void *, size_t) -> int32_t { return 0; };
    TIMES_OUT(stasis_session_write(session.get(), &sink, &saving, error));

    stasis_session *loaded = nullptr;
    const auto loading = short_of_time<stasis_load_options>();
    TIMES_OUT(stasis_session_load(model, path.c_str(), &loading, &loaded, error));
    CHECK(loaded == nullptr);
    const Snapshot snapshot = open_snapshot(path);
    auto report = sized<stasis_verify_report>();
    const auto verifying = short_of_time<stasis_verify_options>();
    TIMES_OUT(stasis_snapshot_verify(snapshot.get(), model, &verifying, &report, error));
    CHECK(report.verified == 0);
    const auto verified = with_time<stasis_verify_options>();
    CHECK(stasis_snapshot_verify(snapshot.get(), model, &verified, &report, nullptr) == STASIS_OK);
    CHECK(position(load(model, path).get()) == 700);
}

TEST_CASE("stasis_model_options: opening, embedding and quantizing end when their time is over") {
    const Folder folder;
    const std::string path = test_data(kModel), out = folder.file("a.gguf");
    const auto opening = short_of_time<stasis_model_options>();
    stasis_model *opened = nullptr;
    TIMES_OUT(stasis_model_open(path.c_str(), &opening, &opened, error));
    CHECK(opened == nullptr);
    const auto quantizing = short_of_time<stasis_quantize_options>();
    TIMES_OUT(stasis_model_quantize(path.c_str(), out.c_str(), &quantizing, nullptr, error));
    CHECK(std::filesystem::is_empty(std::filesystem::path(out).parent_path()));
    const Tokens tokens = some_tokens(40);
    auto input = sized<stasis_embed_input>();
    input.tokens = tokens.data();
    input.token_count = tokens.size();
    auto embedding = short_of_time<stasis_embed_options>();
    embedding.pooling = STASIS_POOLING_LAST;
    std::vector<float> vector(1024);
    size_t count = 0;
    TIMES_OUT(stasis_model_embed(shared_model(kModel), &input, sizeof input, 1, &embedding,
                                 vector.data(), vector.size(), &count, error));
}

TEST_CASE("stasis_session_generate: whose time is over keeps the tokens that it told of, and tells "
          "of the text that was held back") {
    stasis_model *model = shared_model(kModel);
    const Session parent = session_of(model, some_tokens(40));
    const Session alone = fork(parent.get());
    const Tokens expected = draw(alone.get(), 3);
    Listener listener;
    auto options = of_three(nullptr);
    options.callback = Listener::hear;
    options.callback_user = &listener;
    auto result = sized<stasis_generate_result>();
    options.timeout_ms = UINT64_MAX;
    const Session first = fork(parent.get());
    REQUIRE(stasis_session_generate(first.get(), &options, &result, nullptr) == STASIS_OK);
    // The text of three tokens is held back, for it may be the beginning of this.
    char text[200];
    size_t length = 0;
    REQUIRE(stasis_model_detokenize(model, expected.data(), 3, STASIS_DETOKENIZE_MIDDLE, text,
                                    sizeof text, &length, nullptr) == STASIS_OK);
    const std::string shown(text, length), stop = shown + "\x01";
    const char *const stops[] = {stop.c_str()};
    const Session session = fork(parent.get());
    listener = Listener();
    options = of_three(stops);
    options.callback = [](void *user, const stasis_generated *generated) -> int32_t {
        const int32_t heard = Listener::hear(user, generated);
        if (static_cast<Listener *>(user)->tokens.size() == 3) {
            std::this_thread::sleep_for(std::chrono::milliseconds(kLongMs + 1));
        }
        return heard;
    };
    options.callback_user = &listener;
    TIMES_OUT(stasis_session_generate(session.get(), &options, &result, error));
    CHECK(listener.tokens == expected);
    CHECK(listener.text == shown);
    CHECK(listener.last == !shown.empty());
    CHECK(result.stop_reason == STASIS_STOP_TIMEOUT);
    CHECK(result.begin == 40);
    CHECK(result.count == 3);
    CHECK(digest(session.get()) == digest(alone.get()));
}

TEST_CASE("stasis_generation_next: after the generation's time it is over, and the session is "
          "free") {
    stasis_model *model = shared_model(kModel);
    const Session session = session_of(model, some_tokens(40));
    const Session alone = fork(session.get());
    const auto options = of_three(nullptr);
    stasis_generation *raw = nullptr;
    REQUIRE(stasis_generation_begin(session.get(), &options, &raw, nullptr) == STASIS_OK);
    const std::unique_ptr<stasis_generation, Releaser<stasis_generation_end>> generation(raw);
    auto generated = sized<stasis_generated>();
    REQUIRE(stasis_generation_next(raw, &generated, nullptr) == STASIS_OK);
    CHECK(generated.token == draw(alone.get()));
    CHECK(stasis_session_append(session.get(), nullptr, 0, nullptr, nullptr) == STASIS_BUSY);
    std::this_thread::sleep_for(std::chrono::milliseconds(kLongMs + 1));
    for (int again = 0; again < 2; ++again) {
        generated.last = 0;
        TIMES_OUT(stasis_generation_next(raw, &generated, error));
        CHECK(generated.last == 1);
        CHECK(generated.position == 40);
    }
    auto result = sized<stasis_generate_result>();
    REQUIRE(stasis_generation_get_result(raw, &result, nullptr) == STASIS_OK);
    CHECK(result.stop_reason == STASIS_STOP_TIMEOUT);
    CHECK(result.count == 1);
    append(session.get(), some_tokens(5, 2));
    append(alone.get(), some_tokens(5, 2));
    CHECK(digest(session.get()) == digest(alone.get()));
}

TEST_CASE("stasis_scheduler_submit: a session's time ends it alone: before its prompt, within it, "
          "and between its tokens") {
    stasis_model *model = shared_model(kModel);
    const Session before = create(model), within = create(model), between = create(model),
                  untimed = create(model);
    const Scheduler scheduler = make_scheduler(model, limits(4, 16));
    const auto task = [](const Tokens &prompt, uint64_t tokens, uint64_t timeout_ms) {
        Task made{prompt, tokens};
        made.timeout_ms = timeout_ms;
        return made;
    };
    submit(scheduler, before, task(some_tokens(30, 1), 5, kTimeoutMs));
    wait_it_out();
    const Event ended = next(scheduler, before);
    CHECK(ended->end == 1);
    CHECK(ended->status == STASIS_TIMEOUT);
    CHECK(ended->stop_reason == STASIS_STOP_TIMEOUT);
    CHECK(ended->count == 0);
    CHECK(position(before.get()) == 0);

    submit(scheduler, within, task(some_tokens(3000, 2), 5, kLongMs));
    submit(scheduler, between, task(some_tokens(20, 3), 1000, kLongMs));
    submit(scheduler, untimed, task(some_tokens(20, 4), 4, UINT64_MAX));
    uint64_t drawn = 0; // two tokens come long before the time is over
    while (drawn < 2) {
        const Event event = next(scheduler, between);
        REQUIRE(event->end == 0);
        ++drawn;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(kLongMs + 1));
    const AllHeard heard = hear_all(scheduler, 3);
    CHECK(heard.at(within.get()).status == STASIS_TIMEOUT);
    CHECK(heard.at(within.get()).count == 0);
    CHECK(position(within.get()) == 0);
    const Heard &cut = heard.at(between.get());
    CHECK(cut.status == STASIS_TIMEOUT);
    CHECK(cut.reason == STASIS_STOP_TIMEOUT);
    CHECK(cut.count >= 2);
    CHECK(position(between.get()) == 20 + cut.count);
    CHECK(heard.at(untimed.get()).status == STASIS_OK);
    CHECK(heard.at(untimed.get()).count == 4);
    // They are as any sessions, and may be submitted again.
    const Session alone = session_of(model, some_tokens(20, 3));
    draw(alone.get(), cut.count);
    CHECK(digest(between.get()) == digest(alone.get()));
    submit(scheduler, within, task(some_tokens(20, 4), 4, 0));
    CHECK(hear_all(scheduler, 1).at(within.get()).count == 4);
    CHECK(digest(within.get()) == digest(untimed.get()));
}

TEST_CASE("stasis_text_stream_create: a stream has no time") {
    auto options = sized<stasis_generate_options>();
    options.timeout_ms = 1;
    stasis_text_stream *stream = nullptr;
    stasis_error error;
    CHECK(stasis_text_stream_create(shared_model(kModel), &options, &stream, &error) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(contains(error, "timeout_ms"));
}
