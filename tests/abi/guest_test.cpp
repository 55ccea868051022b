// The library as a guest in the host's process: what belongs to the host stays as it was, and has
// no influence. environment_test.cpp has its floating-point modes and its streams, unload.c its
// dlclose.
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <dirent.h>
#include <locale>
#include <map>
#include <sstream>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "tests/abi/fixture.h"
#include "tests/sanitizers.h"

using namespace abi_test;

extern char **environ;

#ifdef STASIS_ADDRESS_SANITIZER
// glibc does not release the list of folders that it makes of LOCPATH (setlocale, newlocale).
extern "C" const char *__lsan_default_suppressions(); // NOLINT: the sanitizer's name
const char *__lsan_default_suppressions() {
    return "leak:argz_add_sep";
}
#endif

namespace {

size_t entries(const char *path) {
    size_t count = 0;
    DIR *folder = opendir(path);
    REQUIRE(folder != nullptr);
    while (const dirent *entry = readdir(folder)) {
        count += entry->d_name[0] != '.' ? 1 : 0;
    }
    closedir(folder);
    return count;
}

std::string bytes_of(const void *data, size_t size) {
    return {static_cast<const char *>(data), size};
}

// All of the process that a library might touch and has no business to.
std::map<std::string, std::string> belongings() {
    std::map<std::string, std::string> all;
    sigset_t mask;
    sigemptyset(&mask);
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    for (int number = 1; number < NSIG; ++number) {
        struct sigaction action {};
        if (sigaction(number, nullptr, &action) == 0) {
            all["signal " + std::to_string(number)] =
                (sigismember(&mask, number) == 1 ? "blocked " : "") +
                std::to_string(reinterpret_cast<uintptr_t>(action.sa_handler)) + " " +
                std::to_string(action.sa_flags);
        }
    }
    for (const int category : {LC_ALL, LC_NUMERIC, LC_CTYPE, LC_COLLATE, LC_TIME}) {
        all["locale " + std::to_string(category)] = setlocale(category, nullptr);
    }
    all["thread's locale"] = std::to_string(reinterpret_cast<uintptr_t>(uselocale(nullptr)));
    char folder[4096];
    REQUIRE(getcwd(folder, sizeof folder) != nullptr);
    all["current directory"] = folder;
    all["environment"] = std::to_string(reinterpret_cast<uintptr_t>(environ));
    for (char **variable = environ; *variable != nullptr; ++variable) {
        all["environment"] += *variable;
    }
    const mode_t creation = umask(0);
    umask(creation);
    all["umask"] = std::to_string(creation);
    for (int resource = 0; resource < RLIM_NLIMITS; ++resource) {
        rlimit limit{};
        getrlimit(static_cast<__rlimit_resource>(resource), &limit);
        all["limit " + std::to_string(resource)] = bytes_of(&limit, sizeof limit);
    }
    for (const __itimer_which timer : {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF}) {
        itimerval value{};
        getitimer(timer, &value);
        all["timer " + std::to_string(timer)] = bytes_of(&value, sizeof value);
    }
    cpu_set_t cores;
    CPU_ZERO(&cores);
    sched_getaffinity(0, sizeof cores, &cores);
    all["cores"] = bytes_of(&cores, sizeof cores);
    all["priority"] = std::to_string(getpriority(PRIO_PROCESS, 0));
    all["descriptors"] = std::to_string(entries("/proc/self/fd"));
    all["threads"] = std::to_string(entries("/proc/self/task"));
    return all;
}

// The element's JSON, all twelve of them.
std::string elements(const std::string &path) {
    const Snapshot snapshot = open_snapshot(path);
    std::string all;
    for (uint32_t element = 1; element <= 12; ++element) {
        std::string json(1 << 20, '\0');
        size_t length = 0;
        REQUIRE(stasis_snapshot_element(snapshot.get(), element, json.data(), json.size(), &length,
                                        nullptr) == STASIS_OK);
        all += json.substr(0, length) + "\n";
    }
    return all;
}

// A bit of everything, with failures; what came of it.
std::string live(const Folder &folder, const std::string &name) {
    const std::string path = folder.file(name);
    auto options = sized<stasis_model_options>();
    options.threads = 3;
    const Model model = open_path(test_data("recall-gemma3"), &options);
    const Session session = create(model.get());
    auto sampling = sized<stasis_sampling>();
    sampling.temperature = 0.7F;
    sampling.top_p = 0.95F;
    REQUIRE(stasis_session_set_sampling(session.get(), &sampling, nullptr) == STASIS_OK);
    const std::string text = "What is k?";
    REQUIRE(stasis_session_append_message(session.get(), "user", text.data(), text.size(),
                                          STASIS_MESSAGE_REPLY, nullptr, nullptr) == STASIS_OK);
    auto generate = sized<stasis_generate_options>();
    generate.tokens_max = 10;
    REQUIRE(stasis_session_generate(session.get(), &generate, nullptr, nullptr) == STASIS_OK);
    REQUIRE(save(session.get(), path) == STASIS_OK);
    const Session loaded = load(model.get(), path);
    const Snapshot snapshot = open_snapshot(path);
    auto report = sized<stasis_verify_report>();
    REQUIRE(stasis_snapshot_verify(snapshot.get(), model.get(), nullptr, &report, nullptr) ==
            STASIS_OK);
    stasis_error error;
    sampling.top_p = 1.5F;
    REQUIRE(stasis_session_set_sampling(session.get(), &sampling, &error) ==
            STASIS_INVALID_ARGUMENT);
    stasis_model *none = nullptr;
    REQUIRE(stasis_model_open("/no/such/model", nullptr, &none, nullptr) == STASIS_NOT_FOUND);
    const Digest state = digest(loaded.get());
    return bytes_of(state.data(), state.size()) + elements(path) + error.message;
}

// Numbers of a model that are written to a GGUF file and read from it: the file's bytes, and what
// the model made of it and the one it was made from recommend.
std::string quantized_numbers(const Folder &folder, const std::string &name) {
    const std::string path = folder.file(name + ".gguf"), source = test_data("recall-llama");
    REQUIRE(stasis_model_quantize(source.c_str(), path.c_str(), nullptr, nullptr, nullptr) ==
            STASIS_OK);
    std::string all = read_file(path);
    for (const std::string &each : {source, path}) {
        auto sampling = sized<stasis_sampling>();
        REQUIRE(stasis_model_recommended_sampling(open_path(each).get(), &sampling, nullptr) ==
                STASIS_OK);
        all += bytes_of(&sampling, sizeof sampling);
    }
    return all;
}

} // namespace

TEST_CASE("stasis.h: what belongs to the host's process is as it was") {
    const Folder folder;
    live(folder, "first"); // what libraries below make once, and the test's own
    struct sigaction handler {
    }, before_usr1{}, before_pipe{};
    handler.sa_handler = [](int) {};
    handler.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &handler, &before_usr1);
    sigaction(SIGPIPE, &handler, &before_pipe);
    sigset_t some, mask;
    sigemptyset(&some);
    sigaddset(&some, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &some, &mask);
    const auto before = belongings();
    srandom(7);
    const long number = random();
    srandom(7);
    live(folder, "second");
    CHECK(random() == number);
    const auto after = belongings();
    pthread_sigmask(SIG_SETMASK, &mask, nullptr);
    sigaction(SIGUSR1, &before_usr1, nullptr);
    sigaction(SIGPIPE, &before_pipe, nullptr);
    REQUIRE(before.size() == after.size());
    for (const auto &each : before) {
        CHECK_MESSAGE(after.at(each.first) == each.second, each.first);
    }
}

TEST_CASE("stasis.h: signals of the process reach no thread of the library") {
    auto options = sized<stasis_model_options>();
    options.threads = 4;
    const Model model = open_path(test_data("zoo/gemma3-text"), &options);
    const Session session = session_of(model.get(), some_tokens(100)); // its threads are there
    static std::atomic<int> elsewhere{0}, here{0};
    static const pthread_t host = pthread_self();
    struct sigaction handler {
    }, before{};
    handler.sa_handler = [](int) {
        (pthread_equal(pthread_self(), host) != 0 ? here : elsewhere)++;
    };
    handler.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &handler, &before);
    sigset_t one, mask, pending;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &one, &mask); // so that it goes to any thread that does not
    kill(getpid(), SIGUSR1);
    append(session.get(), some_tokens(100));
    sigpending(&pending);
    CHECK(sigismember(&pending, SIGUSR1) == 1);
    CHECK(here + elsewhere == 0);
    pthread_sigmask(SIG_SETMASK, &mask, nullptr);
    CHECK(here == 1);
    sigaction(SIGUSR1, &before, nullptr);
}

TEST_CASE("stasis.h: the host's locale has no influence, however it is set") {
    const Folder folder;
    const std::string made = folder.file("de_DE.UTF-8"), log = folder.file("log");
    const std::string command = "localedef -i de_DE -f UTF-8 " + made + " >" + log + " 2>&1";
    if (std::system(command.c_str()) != 0) {
        std::printf("SKIPPED: guest: the host's locale: localedef or its sources are missing\n");
        return;
    }
    const auto work = [&](const std::string &name) {
        return live(folder, name) + quantized_numbers(folder, name);
    };
    const std::string expected = work("plain");
    setenv("LOCPATH", made.substr(0, made.rfind('/')).c_str(), 1);
    const auto check = [&](const char *how) {
        INFO(std::string(how));
        REQUIRE(std::string(localeconv()->decimal_point) == ",");
        const std::string found = work(how);
        const auto differs =
            std::mismatch(found.begin(), found.end(), expected.begin(), expected.end());
        CHECK_MESSAGE(found == expected,
                      found.substr(static_cast<size_t>(differs.first - found.begin()), 40));
    };
    const char *const german = "de_DE.UTF-8";
    REQUIRE(setlocale(LC_ALL, german) != nullptr);
    check("process");
    setlocale(LC_ALL, "C");

    const locale_t own = newlocale(LC_ALL_MASK, german, nullptr);
    REQUIRE(own != nullptr);
    const locale_t before = uselocale(own);
    check("thread");
    uselocale(before);
    freelocale(own);

    const std::locale classic = std::locale::global(std::locale(german));
    std::ostringstream grouped;
    grouped << 1000;
    REQUIRE(grouped.str() == "1.000");
    check("streams");
    std::locale::global(classic);
    unsetenv("LOCPATH");
}

#ifndef STASIS_THREAD_SANITIZER // which cannot follow a process that forks while it has threads

TEST_CASE("stasis.h: the host may fork, and both processes go on") {
    auto options = sized<stasis_model_options>();
    options.threads = 3;
    Model model = open_path(test_data("zoo/gemma3-text"), &options);
    Session session = session_of(model.get(), some_tokens(100));
    Tokens all = some_tokens(100);
    const Tokens more = some_tokens(90, 2);
    all.insert(all.end(), more.begin(), more.end());
    const Digest expected = digest(session_of(model.get(), all).get());
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(20); // should it hang
        append(session.get(), more);
        const bool same = digest(session.get()) == expected;
        const bool again = digest(session_of(model.get(), all).get()) == expected;
        session.reset();
        const Model fresh = open_path(test_data("zoo/gemma3-text"), &options); // with threads
        const bool third = digest(session_of(fresh.get(), all).get()) == expected;
        model.reset(); // whose threads this process cannot wait for
        _exit(same && again && third ? 0 : 1);
    }
    append(session.get(), more);
    CHECK(digest(session.get()) == expected);
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}

#endif
