// Cancelling from a signal handler: at random microseconds of every long call, which then ends with
// CANCELLED or as it would have, leaves the session as a cancelled call does, and the next one
// works.
#include <csignal>
#include <functional>

#include <sys/time.h>

#include "tests/abi/fixture.h"

using namespace abi_test;

namespace {

stasis_cancel *in_handler = nullptr; // set before the timer is

// A timer whose signal requests a cancel, while it exists.
class Alarm {
  public:
    Alarm(stasis_cancel *cancel, long microseconds) {
        in_handler = cancel;
        struct sigaction action {};
        action.sa_handler = [](int) { stasis_cancel_request(in_handler); };
        sigaction(SIGALRM, &action, &before_); // no SA_RESTART: reads are interrupted
        const itimerval timer{{0, 100}, {0, microseconds}};
        setitimer(ITIMER_REAL, &timer, nullptr);
    }
    ~Alarm() {
        const itimerval none{};
        setitimer(ITIMER_REAL, &none, nullptr);
        sigaction(SIGALRM, &before_, nullptr);
    }
    Alarm(const Alarm &) = delete;
    Alarm &operator=(const Alarm &) = delete;

  private:
    struct sigaction before_ {};
};

// Calls again and again, each time with a signal a little later, until one was in time to end.
void interrupt(const char *name, stasis_cancel *cancel, const std::function<stasis_status()> &call,
               const std::function<void(stasis_status)> &check) {
    CAPTURE(name);
    int cancelled = 0;
    long wait = 1;
    for (int round = 0; round < 60; ++round) {
        CAPTURE(wait);
        stasis_cancel_reset(cancel);
        stasis_status status = STASIS_INTERNAL;
        {
            const Alarm alarm(cancel, wait);
            status = call();
        }
        CHECK((status == STASIS_OK || status == STASIS_CANCELLED));
        check(status);
        cancelled += status == STASIS_CANCELLED ? 1 : 0;
        wait = status == STASIS_OK ? 1 + wait / 7 : 1 + wait + wait / 3;
    }
    CHECK(cancelled > 0);
    stasis_cancel_reset(cancel);
    CHECK(call() == STASIS_OK);
    check(STASIS_OK);
}

const Tokens &appended_tokens() {
    static const Tokens tokens = some_tokens(100, 5);
    return tokens;
}

} // namespace

TEST_CASE("stasis_cancel_request: a signal handler cancels: append, score, generate") {
    const Cancel cancel = make_cancel();
    const Session parent = session_of(gemma(), some_tokens(90));
    const Session appended = fork(parent.get());
    append(appended.get(), appended_tokens());
    const Digest before = digest(parent.get()), after = digest(appended.get());
    Session session;
    auto options = sized<stasis_run_options>();
    options.chunk = 16;
    options.cancel = cancel.get();
    interrupt(
        "append", cancel.get(),
        [&] {
            session = fork(parent.get());
            return stasis_session_append(session.get(), appended_tokens().data(),
                                         appended_tokens().size(), &options, nullptr);
        },
        [&](stasis_status status) {
            CHECK(digest(session.get()) == (status == STASIS_OK ? after : before));
        });
    std::vector<double> scores(appended_tokens().size());
    interrupt(
        "score", cancel.get(),
        [&] {
            return stasis_session_score(parent.get(), appended_tokens().data(),
                                        appended_tokens().size(), scores.data(), &options, nullptr);
        },
        [&](stasis_status) { CHECK(digest(parent.get()) == before); });
    auto generate = sized<stasis_generate_options>();
    generate.tokens_max = 30;
    generate.flags = STASIS_GENERATE_IGNORE_END;
    generate.cancel = cancel.get();
    interrupt(
        "generate", cancel.get(),
        [&] {
            session = fork(parent.get());
            return stasis_session_generate(session.get(), &generate, nullptr, nullptr);
        },
        [&](stasis_status) { // decoded tokens stay
            const Session again = fork(parent.get());
            stasis_token token = 0;
            for (uint64_t at = position(again.get()); at < position(session.get()); ++at) {
                REQUIRE(stasis_session_decode(again.get(), &token, nullptr) == STASIS_OK);
            }
            CHECK(digest(again.get()) == digest(session.get()));
        });
}

TEST_CASE("stasis_cancel_request: a signal handler cancels: save, load, verify, open") {
    const Cancel cancel = make_cancel();
    const Folder folder;
    const Session session = session_of(gemma(), some_tokens(200));
    const Digest state = digest(session.get());
    const std::string path = folder.file("saved"), other = folder.file("other");
    REQUIRE(save(session.get(), path) == STASIS_OK);
    auto saving = sized<stasis_save_options>();
    saving.cancel = cancel.get();
    saving.codec = STASIS_CODEC_ZSTD;
    interrupt(
        "save", cancel.get(),
        [&] {
            std::filesystem::remove(other);
            return stasis_session_save(session.get(), other.c_str(), &saving, nullptr);
        },
        [&](stasis_status status) {
            CHECK(std::filesystem::exists(other) == (status == STASIS_OK));
        });
    auto loading = sized<stasis_load_options>();
    loading.cancel = cancel.get();
    stasis_session *loaded = nullptr;
    interrupt(
        "load", cancel.get(),
        [&] {
            loaded = nullptr;
            return stasis_session_load(gemma(), path.c_str(), &loading, &loaded, nullptr);
        },
        [&](stasis_status status) {
            const Session own(loaded);
            REQUIRE((own != nullptr) == (status == STASIS_OK));
            CHECK((own == nullptr || digest(own.get()) == state));
        });
    auto verifying = sized<stasis_verify_options>();
    verifying.cancel = cancel.get();
    auto report = sized<stasis_verify_report>();
    const Snapshot snapshot = open_snapshot(path);
    interrupt(
        "verify", cancel.get(),
        [&] {
            report = sized<stasis_verify_report>();
            return stasis_snapshot_verify(snapshot.get(), gemma(), &verifying, &report, nullptr);
        },
        [&](stasis_status status) { CHECK(report.verified == (status == STASIS_OK ? 1 : 0)); });
    auto opening = sized<stasis_model_options>();
    opening.cancel = cancel.get();
    stasis_model *opened = nullptr;
    interrupt(
        "open", cancel.get(),
        [&] {
            opened = nullptr;
            return stasis_model_open(test_data("zoo/gemma3-text").c_str(), &opening, &opened,
                                     nullptr);
        },
        [&](stasis_status status) {
            const Model own(opened);
            CHECK((own != nullptr) == (status == STASIS_OK));
        });
}
