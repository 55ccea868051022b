// fork() of the host process: parent and child both continue with the same bits, with the objects
// that the child inherits and with those that it opens itself. Not under the thread sanitizer,
// which cannot follow a process that forks while it has threads.
#include "tests/sanitizers.h"

#ifndef STASIS_THREAD_SANITIZER

#include <filesystem>
#include <functional>
#include <iterator>

#include <sys/wait.h>

#include "tests/abi/device_module.h"
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

// Whether `body` returns true in a forked child, which is killed if it hangs; `beside` is what the
// parent does meanwhile.
template <typename Body> bool in_child(const Body &body, const std::function<void()> &beside = {}) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(60);
        bool good = false;
        try {
            good = body();
        } catch (...) { // a REQUIRE, which must not continue with the parent's tests
        }
        _exit(good ? 0 : 1);
    }
    if (beside) {
        beside();
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

TEST_CASE("stasis.h: a forked host: the child uses what it inherits, or its own, and the parent "
          "goes on") {
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
    SUBCASE("both at the same time, each into a file of its own") {
        const Folder folder;
        const auto go = [&](const std::string &name) {
            const Session own = fork(session.get());
            const bool same = go_on(own.get()) == expected;
            return same && save(own.get(), folder.file(name)) == STASIS_OK;
        };
        CHECK(in_child([&] { return go("child"); }, [&] { CHECK(go("parent")); }));
        for (const char *name : {"child", "parent"}) {
            CHECK(digest(load(model.get(), folder.file(name)).get()) == expected);
        }
    }
    SUBCASE("from a callback, whose call goes on in both") {
        struct Forked {
            pid_t child = -1;
        } forked;
        auto options = sized<stasis_run_options>();
        options.chunk = 10;
        options.progress = [](void *user, uint64_t done, uint64_t) -> int32_t {
            auto &own = *static_cast<Forked *>(user);
            own.child = done == 20 ? ::fork() : own.child;
            return 0;
        };
        options.progress_user = &forked;
        const Session own = fork(session.get());
        const Tokens more = some_tokens(50, 2);
        const Session whole = fork(session.get());
        append(whole.get(), more);
        const stasis_status status =
            stasis_session_append(own.get(), more.data(), more.size(), &options, nullptr);
        const bool same = status == STASIS_OK && digest(own.get()) == digest(whole.get());
        if (forked.child == 0) {
            _exit(same ? 0 : 1);
        }
        int ended = -1;
        REQUIRE(waitpid(forked.child, &ended, 0) == forked.child);
        CHECK(ended == 0);
        CHECK(same);
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

TEST_CASE(
    "stasis.h: a forked host: what lies on a device is refused in the child, and can be released") {
    REQUIRE(device_module_loaded);
    auto options = sized<stasis_model_options>();
    options.device = "cuda";
    const std::string path = test_data("zoo/gemma3-text");
    Model model = open_path(path, &options);
    Session session = session_of(model.get(), prompt());
    const Session other = session_of(model.get(), prompt());
    const Folder folder;
    const auto refused = [&](const auto &call) {
        stasis_error error{};
        return call(&error) == STASIS_DEVICE && contains(error, "fork()");
    };
    const Tokens more = some_tokens(70);
    const auto tokens = more.data();
    CHECK(in_child([&] {
        stasis_token token = 0;
        stasis_digest state;
        stasis_session *own = session.get();
        const bool all =
            refused([&](stasis_error *e) { // into the last page, and into a new one
                return stasis_session_append(own, tokens, 1, nullptr, e);
            }) &&
            refused([&](stasis_error *e) {
                return stasis_session_append(own, tokens, 70, nullptr, e);
            }) &&
            refused([&](stasis_error *e) { return stasis_session_decode(own, &token, e); }) &&
            refused([&](stasis_error *e) {
                return stasis_session_generate(own, nullptr, nullptr, e);
            }) &&
            refused([&](stasis_error *e) { return stasis_session_digest(own, &state, e); }) &&
            refused([&](stasis_error *e) {
                return stasis_session_save(own, folder.file("s").c_str(), nullptr, e);
            });
        const bool readable = position(own) == 100;
        const Session fresh = create(model.get());
        const bool empty = refused([&](stasis_error *e) {
            return stasis_session_append(fresh.get(), tokens, 1, nullptr, e);
        });
        const Model here = open_path(path);
        const bool same = go_on(session_of(here.get(), prompt()).get()) ==
                          go_on(session_of(gemma(), prompt()).get());
        session.reset();
        model.reset();
        return all && readable && empty && same && !std::filesystem::exists(folder.file("s"));
    }));
    CHECK(in_child([&] {
        session.reset();
        model.reset();
        return true;
    }));
    const Digest expected = go_on(session_of(gemma(), prompt()).get());
    CHECK(go_on(session.get()) == expected);
    CHECK(go_on(other.get()) == expected);
}

#endif // STASIS_THREAD_SANITIZER
