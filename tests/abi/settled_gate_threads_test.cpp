// Who waits for whom where a session is read while it generates: for a pass, for those who came
// before, and never for one's own call. A case in which somebody waits for ever ends the program
// after a minute.
#include <chrono> // before <barrier>, which needs it in GCC 12

#include <barrier>

#include <unistd.h>

#include "tests/abi/scheduled.h"
#include "tests/abi/settled.h"

using namespace abi_test;

namespace {

struct Minute {
    Minute() { alarm(60); }
    ~Minute() { alarm(0); }
};

stasis_status try_digest(const Session &session, Digest *result = nullptr) {
    stasis_digest value{};
    const stasis_status status = stasis_session_digest(session.get(), &value, nullptr);
    if (result != nullptr) {
        std::memcpy(result->data(), value.bytes, result->size());
    }
    return status;
}

// A call that looks at the session and stays in it until it is told to go: a fork, whose trace is
// called in the middle.
class LongLook {
  public:
    explicit LongLook(const Session &session)
        : session_(session), acting_{STASIS_TRACE_FORK, [this] {
                                         in_ = true;
                                         wait_for(go_);
                                     }} {
        acting_.listen(session.get());
    }
    void begin() {
        thread_ = std::thread([this] {
            stasis_session *child = nullptr;
            status_ = stasis_session_fork(session_.get(), &child, nullptr);
            stasis_session_free(child);
        });
        wait_for(in_);
    }
    void let_go() { go_ = true; }
    void end() {
        go_ = true;
        thread_.join();
        CHECK(status_ == STASIS_OK);
    }

  private:
    const Session &session_;
    Acting acting_;
    std::atomic<bool> in_{false}, go_{false};
    std::thread thread_;
    stasis_status status_ = STASIS_INTERNAL;
};

// A thread that asks for the digest once, as soon as it is begun.
struct Reader {
    const Session &session;
    Digest value{};
    stasis_status status = STASIS_INTERNAL;
    std::atomic<bool> answered{false};
    std::thread thread{};

    void begin() {
        thread = std::thread([this] {
            status = try_digest(session, &value);
            answered = true;
        });
        a_moment();
    }
    void end() { thread.join(); }
};

// Computes a token of a session, in one of three forms.
enum class Way { told, pulled, scheduled };
void generate_one(const Session &session, Way form) {
    if (form == Way::told) {
        const auto options = on_and_on(1);
        CHECK(stasis_session_generate(session.get(), &options, nullptr, nullptr) == STASIS_OK);
    } else if (form == Way::pulled) {
        next(begin(session.get(), on_and_on(1)).get());
    } else {
        const Scheduler scheduler = make_scheduler(gemma());
        submit(scheduler, session, {.tokens_max = 1});
        CHECK(next(scheduler)->end == 0);
    }
}

} // namespace

TEST_CASE("stasis_session_digest: on another thread, it waits for the pass that runs") {
    const Minute minute;
    const Answers answers = answers_of(prepared(gemma(), Drafter::none, 0), 1);
    for (const Way form : {Way::told, Way::pulled, Way::scheduled}) {
        CAPTURE(static_cast<int>(form));
        const Session session = prepared(gemma(), Drafter::none, 0);
        Reader reader{session};
        bool asked = false, early = true;
        Acting acting{STASIS_TRACE_APPEND, [&] { // in the middle of the pass
                          if (!asked) {
                              asked = true;
                              reader.begin();
                              early = reader.answered;
                              CHECK(try_digest(session) == STASIS_BUSY); // on this thread
                          }
                      }};
        acting.listen(session.get());
        generate_one(session, form);
        reader.end();
        CHECK(asked);
        CHECK(!early);
        CHECK(reader.status == STASIS_OK);
        CHECK(reader.value == answers.digests[1]);
        REQUIRE(stasis_session_set_trace(session.get(), nullptr, nullptr) == STASIS_OK);
    }
}

TEST_CASE("stasis_session_digest: threads in whose passes callbacks read each other's sessions get "
          "BUSY, and none waits for ever") {
    const Minute minute;
    const Session sessions[] = {prepared(gemma(), Drafter::none, 0),
                                prepared(gemma(), Drafter::none, 0)};
    std::barrier<> both(2);
    stasis_status inside[] = {STASIS_OK, STASIS_OK};
    const auto work = [&](size_t own) {
        bool asked = false;
        Acting acting{STASIS_TRACE_APPEND, [&] {
                          if (!asked) {
                              asked = true;
                              both.arrive_and_wait();
                              inside[own] = try_digest(sessions[1 - own]);
                              both.arrive_and_wait();
                          }
                      }};
        acting.listen(sessions[own].get());
        generate_one(sessions[own], Way::told);
        stasis_session_set_trace(sessions[own].get(), nullptr, nullptr);
    };
    std::thread other(work, 1);
    work(0);
    other.join();
    CHECK(inside[0] == STASIS_BUSY);
    CHECK(inside[1] == STASIS_BUSY);
}

TEST_CASE(
    "stasis_session_generate: its callback reads while another thread does, and waits for it") {
    const Minute minute;
    const Session session = prepared(gemma(), Drafter::none, 0);
    LongLook look(session);
    struct Host {
        const Session &session;
        LongLook &look;
        stasis_status status = STASIS_INTERNAL;
    } host{session, look};
    auto options = on_and_on(1);
    options.callback_user = &host;
    options.callback = [](void *user, const stasis_generated *) -> int32_t {
        auto &own = *static_cast<Host *>(user);
        own.look.begin();
        std::thread later([&] {
            a_moment();
            own.look.let_go();
        });
        own.status = try_digest(own.session);
        later.join();
        return 0;
    };
    REQUIRE(stasis_session_generate(session.get(), &options, nullptr, nullptr) == STASIS_OK);
    look.end();
    CHECK(host.status == STASIS_OK);
    REQUIRE(stasis_session_set_trace(session.get(), nullptr, nullptr) == STASIS_OK);
}

TEST_CASE("stasis_generation_next: a thread that reads again and again comes after the pass that "
          "waits for it") {
    const Minute minute;
    const Answers answers = answers_of(prepared(gemma(), Drafter::none, 0), 1);
    const Session session = prepared(gemma(), Drafter::none, 0);
    LongLook look(session);
    const Generation generation = begin(session.get(), on_and_on(4));
    look.begin();
    std::atomic<bool> computed{false};
    std::thread generates([&] {
        next(generation.get());
        computed = true;
    });
    a_moment();
    CHECK(!computed); // it waits for the reader
    Reader reader{session};
    reader.begin();
    CHECK(!reader.answered); // and this one for the pass
    look.end();
    generates.join();
    reader.end();
    CHECK(reader.status == STASIS_OK);
    CHECK(reader.value == answers.digests[1]);
    CHECK(try_digest(session) == STASIS_OK);
    stasis_session_set_trace(session.get(), nullptr, nullptr);
}

TEST_CASE("stasis_session_append: it waits for threads that look at the session, and makes no "
          "other call wait") {
    const Minute minute;
    const Session session = prepared(gemma(), Drafter::none, 0);
    LongLook look(session);
    look.begin();
    stasis_status appended = STASIS_INTERNAL;
    const stasis_token token = 3;
    std::thread changes(
        [&] { appended = stasis_session_append(session.get(), &token, 1, nullptr, nullptr); });
    a_moment();
    CHECK(try_digest(session) == STASIS_BUSY); // as while it runs
    CHECK(stasis_session_append(session.get(), &token, 1, nullptr, nullptr) == STASIS_BUSY);
    look.end();
    changes.join();
    CHECK(appended == STASIS_OK);
    CHECK(position(session.get()) == 41);
    CHECK(stasis_session_set_trace(session.get(), nullptr, nullptr) == STASIS_OK);
}

TEST_CASE("stasis_session_save: while a generation is open, its pass waits, and other threads that "
          "read get BUSY") {
    const Minute minute;
    const Folder folder;
    const Answers answers = answers_of(prepared(gemma(), Drafter::none, 0), 2);
    const Session session = prepared(gemma(), Drafter::model, 0);
    const Generation generation = begin(session.get(), on_and_on(4));
    next(generation.get());
    std::atomic<bool> in{false}, go{false};
    struct Host {
        std::atomic<bool> &in, &go;
    } host{in, go};
    auto options = sized<stasis_save_options>();
    options.progress_user = &host;
    options.progress = [](void *user, uint64_t, uint64_t) -> int32_t {
        const Host &own = *static_cast<Host *>(user);
        own.in = true;
        wait_for(own.go);
        return 0;
    };
    stasis_status saved = STASIS_INTERNAL;
    std::thread saves([&] {
        saved = stasis_session_save(session.get(), folder.file("a").c_str(), &options, nullptr);
    });
    wait_for(in);
    std::atomic<bool> computed{false};
    std::thread generates([&] {
        next(generation.get());
        computed = true;
    });
    a_moment();
    CHECK(!computed);
    CHECK(try_digest(session) == STASIS_BUSY);
    go = true;
    saves.join();
    generates.join();
    CHECK(saved == STASIS_OK);
    CHECK(digest(load(gemma(), folder.file("a")).get()) == answers.digests[1]);
    CHECK(digest(session.get()) == answers.digests[2]);
}

TEST_CASE("stasis_scheduler_next: threads that wait for a session's pass go on when no thread is "
          "left to compute it") {
    const Minute minute;
    const Session session = prepared(gemma(), Drafter::none, 0);
    const Digest before = digest(session.get());
    LongLook look(session);
    const Scheduler scheduler = make_scheduler(gemma());
    submit(scheduler, session, {.tokens_max = 1});
    look.begin();
    Reader reader{session};
    std::thread asks([&] { CHECK(next(scheduler, nullptr, 100) == nullptr); }); // it is being read
    a_moment();
    reader.begin();
    CHECK(!reader.answered);
    asks.join();
    look.end();
    reader.end();
    CHECK(reader.status == STASIS_OK);
    CHECK(reader.value == before);
    CHECK(next(scheduler)->end == 0); // and then it is computed
    CHECK(next(scheduler)->end == 1);
    stasis_session_set_trace(session.get(), nullptr, nullptr);
}

TEST_CASE("stasis_scheduler_next: threads that wait for a session are answered when its prompt "
          "begins, for the position before it") {
    const Minute minute;
    const Session session = prepared(gemma(), Drafter::none, 0);
    const Digest before = digest(session.get());
    LongLook look(session);
    const Scheduler scheduler = make_scheduler(gemma(), limits(0, 16));
    submit(scheduler, session, {some_tokens(100, 5), 1});
    look.begin();
    std::thread computes([&] { CHECK(next(scheduler)->position == 140); });
    a_moment();
    Reader reader{session};
    reader.begin();
    CHECK(!reader.answered);
    look.end();
    reader.end();
    computes.join();
    CHECK(reader.status == STASIS_OK);
    CHECK(reader.value == before);
    CHECK(next(scheduler)->end == 1);
    CHECK(position(session.get()) == 141);
    stasis_session_set_trace(session.get(), nullptr, nullptr);
}

TEST_CASE("stasis_scheduler_stop: a prompt that has begun is undone also while its session is "
          "being read, for as long as that takes, and by the reader's own callback") {
    const Minute minute;
    for (const bool by_callback : {false, true}) {
        const Session session = prepared(gemma(), Drafter::none, 0);
        const Session plain = prepared(gemma(), Drafter::none, 0);
        const Session ticking = session_of(gemma(), some_tokens(3));
        const Scheduler scheduler = make_scheduler(gemma(), limits(0, 16, 1));
        submit(scheduler, ticking, {.tokens_max = 0});
        submit(scheduler, session, {some_tokens(100, 5), 1});
        for (int i = 0; i < 3; ++i) {
            CHECK(next(scheduler, ticking)->end == 0);
        }
        CHECK(stats_of(scheduler).prompt_positions >= 32);
        if (by_callback) {
            Acting acting{STASIS_TRACE_FORK, [&] { stasis_scheduler_stop(scheduler.get()); }};
            acting.listen(session.get());
            CHECK(digest(fork(session.get()).get()) == digest(plain.get()));
            stasis_session_set_trace(session.get(), nullptr, nullptr);
        } else {
            LongLook look(session);
            look.begin();
            stasis_scheduler_stop(scheduler.get());
            look.end();
            stasis_session_set_trace(session.get(), nullptr, nullptr);
        }
        CHECK(digest(session.get()) == digest(plain.get()));
        append(session.get(), some_tokens(30, 7)); // free
        append(plain.get(), some_tokens(30, 7));
        CHECK(digest(session.get()) == digest(plain.get()));
    }
}
