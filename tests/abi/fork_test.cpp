// fork() of the host process: parent and child go on, each with the same bits, with what the child
// inherits and with what it opens itself. Not under the thread sanitizer, which cannot follow a
// process that forks while it has threads.
#include "tests/sanitizers.h"

#ifndef STASIS_THREAD_SANITIZER

#include <filesystem>
#include <iterator>

#include <sys/wait.h>

#include "tests/abi/fixture.h"

using namespace abi_test;

namespace {

const Tokens &prompt() {
    static const Tokens tokens = some_tokens(100);
    return tokens;
}

Model open_with_threads(uint32_t threads) {
    auto options = sized<stasis_model_options>();
    options.threads = threads;
    return open_path(test_data("zoo/gemma3-text"), &options);
}

// Grows a session by a prompt's worth, many rows at once, then token by token.
Digest go_on(stasis_session *session) {
    append(session, some_tokens(50, 2));
    stasis_token token = 0;
    for (int i = 0; i < 20; ++i) {
        REQUIRE(stasis_session_decode(session, &token, nullptr) == STASIS_OK);
    }
    return digest(session);
}

// Whether `body` returns true in a forked child, which is killed if it hangs.
template <typename Body> bool in_child(const Body &body) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(60);
        bool good = false;
        try {
            good = body();
        } catch (...) { // a REQUIRE, which must not go on with the parent's tests
        }
        _exit(good ? 0 : 1);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

size_t threads_of_this_process() {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

} // namespace

TEST_CASE("a forked host: the child uses what it inherits, or its own, and the parent goes on") {
    Model model = open_with_threads(3);
    Session session = session_of(model.get(), prompt());
    const Digest before = digest(session.get());
    const Digest expected = go_on(fork(session.get()).get());

    SUBCASE("what it inherits, on its one thread") {
        CHECK(in_child([&] {
            const bool same = digest(session.get()) == before && go_on(session.get()) == expected &&
                              go_on(session_of(model.get(), prompt()).get()) == expected;
            return same && threads_of_this_process() == 1;
        }));
    }
    SUBCASE("nothing of what it inherits, which it releases") {
        CHECK(in_child([&] {
            session.reset();
            model.reset();
            return true;
        }));
    }
    SUBCASE("a model of its own, with threads of its own, beside the one that it inherits") {
        CHECK(in_child([&] {
            const Model own = open_with_threads(3);
            const bool threads = threads_of_this_process() == 3;
            const bool same = go_on(session_of(own.get(), prompt()).get()) == expected;
            return threads && same && go_on(session.get()) == expected;
        }));
    }
    SUBCASE("a snapshot between the two") {
        const Folder folder;
        CHECK(in_child([&] {
            go_on(session.get());
            return save(session.get(), folder.file("a")) == STASIS_OK;
        }));
        CHECK(digest(load(model.get(), folder.file("a")).get()) == expected);
    }
    SUBCASE("a child of the child") {
        CHECK(in_child([&] {
            return in_child([&] { return go_on(session.get()) == expected; }) &&
                   go_on(session.get()) == expected;
        }));
    }
    CHECK(digest(session.get()) == before); // whatever the child did
    CHECK(go_on(session.get()) == expected);
    CHECK(go_on(session_of(model.get(), prompt()).get()) == expected);
}

#endif // STASIS_THREAD_SANITIZER
