// Pools of threads that models share: the bits of models alone, where the threads run, what they
// are called, and when they end. The thread sanitizer runs all of it.
#include <chrono>
#include <functional>
#include <thread>

#include <sched.h>
#include <sys/wait.h>

#include "tests/abi/fixture.h"
#include "tests/sanitizers.h"

using namespace abi_test;

namespace {

using Pool = std::unique_ptr<stasis_threads, Releaser<stasis_threads_free>>;

Pool make_pool(uint32_t count, const char *name, const std::vector<uint32_t> &cpus = {}) {
    auto options = sized<stasis_threads_options>();
    options.count = count;
    options.name = name;
    options.cpus = cpus.data();
    options.cpu_count = cpus.size();
    stasis_threads *threads = nullptr;
    stasis_error error;
    const stasis_status status = stasis_threads_create(&options, &threads, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    return Pool(threads);
}

Model open_in(const Pool &pool, const std::string &name) {
    auto options = sized<stasis_model_options>();
    options.thread_pool = pool.get();
    return open_path(test_data(name), &options);
}

// The threads of this process: numbers and names.
std::vector<std::pair<pid_t, std::string>> live_threads() {
    std::vector<std::pair<pid_t, std::string>> live;
    for (const auto &task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::ifstream file(task.path() / "comm");
        std::string name;
        if (std::getline(file, name)) {
            live.emplace_back(std::stoi(task.path().filename()), name);
        }
    }
    return live;
}

std::vector<std::string> names_from(const std::string &prefix) {
    std::vector<std::string> names;
    for (const auto &[thread, name] : live_threads()) {
        if (name.rfind(prefix, 0) == 0) {
            names.push_back(name);
        }
    }
    std::sort(names.begin(), names.end());
    return names;
}

// Waits, for a thread takes its name when it first runs, and leaves /proc after it was joined.
bool becomes_true(const std::function<bool()> &condition) {
    for (int wait = 0; wait < 5000 && !condition(); ++wait) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return condition();
}

std::vector<uint32_t> cpus_of(pid_t thread) {
    cpu_set_t set;
    CPU_ZERO(&set);
    REQUIRE(sched_getaffinity(thread, sizeof set, &set) == 0);
    std::vector<uint32_t> cpus;
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(cpu, &set)) {
            cpus.push_back(cpu);
        }
    }
    return cpus;
}

const char *const kTwo[] = {"recall-gemma3", "zoo/llama-gqa-untied"};

// What a conversation of some prefills and draws ends with.
Digest converse(stasis_model *model, uint32_t seed) {
    const Session session = create(model);
    for (uint32_t turn = 0; turn < 3; ++turn) {
        append(session.get(), some_tokens(90, seed + turn));
        draw(session.get(), 4);
    }
    return digest(session.get());
}

#define THREADS_REFUSED(options, text)                                                             \
    do {                                                                                           \
        stasis_threads *threads = nullptr;                                                         \
        stasis_error error;                                                                        \
        CHECK(stasis_threads_create(&(options), &threads, &error) == STASIS_INVALID_ARGUMENT);     \
        CHECK_MESSAGE(contains(error, text), error.message);                                       \
        CHECK(threads == nullptr);                                                                 \
    } while (false)

} // namespace

TEST_CASE("stasis_threads_create: models that share a pool, on several host threads at the same "
          "time, give the bits that they give alone") {
    constexpr uint32_t kHosts = 4;
    Digest alone[kHosts];
    for (uint32_t host = 0; host < kHosts; ++host) {
        auto options = sized<stasis_model_options>();
        options.threads = 1;
        alone[host] = converse(open_path(test_data(kTwo[host % 2]), &options).get(), host);
    }
    for (const uint32_t count : {1, 3}) {
        CAPTURE(count);
        const Pool pool = make_pool(count, "same-bits");
        const Model models[] = {open_in(pool, kTwo[0]), open_in(pool, kTwo[1])};
        Digest together[kHosts];
        std::vector<std::thread> hosts;
        for (uint32_t host = 0; host < kHosts; ++host) {
            hosts.emplace_back(
                [&, host] { together[host] = converse(models[host % 2].get(), host); });
        }
        for (std::thread &host : hosts) {
            host.join();
        }
        for (uint32_t host = 0; host < kHosts; ++host) {
            CHECK(together[host] == alone[host]);
        }
    }
}

TEST_CASE("stasis_threads_create: a draft model computes with the threads of the model that it "
          "drafts for") {
    const Tokens prompt = some_tokens(60);
    const Session plain = session_of(shared_model(kTwo[0]), prompt);
    draw(plain.get(), 40);
    const Pool pool = make_pool(3, "drafts");
    const Model model = open_in(pool, kTwo[0]), draft = open_in(pool, kTwo[0]);
    const Session session = session_of(model.get(), prompt);
    auto drafting = sized<stasis_draft_options>();
    drafting.tokens_min = drafting.tokens_max = 4; // although it costs as much as the model
    REQUIRE(stasis_session_set_draft(session.get(), draft.get(), &drafting, nullptr) == STASIS_OK);
    auto options = sized<stasis_generate_options>();
    options.tokens_max = 40;
    options.flags = STASIS_GENERATE_IGNORE_END;
    auto result = sized<stasis_generate_result>();
    REQUIRE(stasis_session_generate(session.get(), &options, &result, nullptr) == STASIS_OK);
    CHECK(result.accepted > 20);
    CHECK(digest(session.get()) == digest(plain.get()));
}

TEST_CASE("stasis_threads_create: the count of threads does not grow with the models that have "
          "the pool") {
    const size_t before = live_threads().size();
    const Pool pool = make_pool(4, "constant");
    CHECK(becomes_true([&] { return live_threads().size() == before + 3; }));
    std::vector<Model> models;
    for (int i = 0; i < 6; ++i) {
        models.push_back(open_in(pool, kTwo[i % 2]));
        auto info = sized<stasis_model_info>();
        REQUIRE(stasis_model_get_info(models.back().get(), &info, nullptr) == STASIS_OK);
        CHECK(info.threads == 4);
        converse(models.back().get(), 1);
        CHECK(becomes_true([&] { return live_threads().size() == before + 3; }));
    }
}

TEST_CASE("stasis_threads_free: threads end with the last model or session that needs them") {
    Pool pool = make_pool(3, "lives");
    Model first = open_in(pool, kTwo[0]), second = open_in(pool, kTwo[1]);
    const std::vector<std::string> both = {"lives1", "lives2"};
    CHECK(becomes_true([&] { return names_from("lives") == both; }));
    pool.reset();
    const Digest expected = converse(shared_model(kTwo[0]), 5);
    CHECK(converse(first.get(), 5) == expected);
    first.reset();
    Session session = session_of(second.get(), some_tokens(100));
    second.reset(); // which the session keeps alive
    append(session.get(), some_tokens(100, 2));
    CHECK(names_from("lives") == both);
    session.reset();
    CHECK(becomes_true([&] { return names_from("lives").empty(); }));
    // A pool that no model has ends at once.
    make_pool(2, "lives");
    CHECK(becomes_true([&] { return names_from("lives").empty(); }));
}

TEST_CASE("stasis_threads_create: started threads have the names and the CPUs that were asked for, "
          "and the caller keeps its own") {
    const std::vector<uint32_t> allowed = cpus_of(0);
    const std::vector<uint32_t> last = {allowed.back()};
    const auto comm = [] { return read_file("/proc/thread-self/comm"); };
    const std::string own = comm();
    const Pool pool = make_pool(11, "thirteen-byte", last); // numbers up to 10: 15 bytes
    CHECK(becomes_true([&] { return names_from("thirteen-byte").size() == 10; }));
    size_t found = 0;
    for (const auto &[thread, name] : live_threads()) {
        if (name.rfind("thirteen-byte", 0) == 0) {
            ++found;
            CHECK(cpus_of(thread) == last);
        }
    }
    CHECK(found == 10);
    CHECK(names_from("thirteen-byte").back() == "thirteen-byte9");
    CHECK(names_from("thirteen-byte10").size() == 1);
    CHECK(cpus_of(0) == allowed);
    CHECK(comm() == own);
    // They compute there; the bits are the same.
    const Model model = open_in(pool, kTwo[0]);
    CHECK(converse(model.get(), 3) == converse(shared_model(kTwo[0]), 3));
}

TEST_CASE("stasis_threads_create: a count of 0 is a thread for each CPU of the list, or else for "
          "each that this thread may use") {
    const auto threads_of = [](const Pool &pool) {
        auto info = sized<stasis_model_info>();
        const Model model = open_in(pool, "zoo/gemma3-text");
        REQUIRE(stasis_model_get_info(model.get(), &info, nullptr) == STASIS_OK);
        return info.threads;
    };
    const std::vector<uint32_t> allowed = cpus_of(0);
    CHECK(threads_of(make_pool(0, nullptr)) == allowed.size());
    CHECK(threads_of(make_pool(0, nullptr, {allowed.front()})) == 1);
    CHECK(threads_of(make_pool(0, nullptr, allowed)) == allowed.size());
    CHECK(threads_of(make_pool(5, nullptr, {allowed.front()})) == 5);
}

TEST_CASE("stasis_threads_create: what is refused starts no thread") {
    const size_t before = live_threads().size();
    auto options = sized<stasis_threads_options>();
    options.count = 1025;
    THREADS_REFUSED(options, "1025");
    options.count = 3;
    options.name = "";
    THREADS_REFUSED(options, "empty");
    options.name = "fifteen-bytes--"; // and no room for a number
    THREADS_REFUSED(options, "fifteen-bytes--");
    options.name = nullptr;
    options.cpu_count = 1;
    THREADS_REFUSED(options, "options.cpus");
    const uint32_t cpus[] = {cpus_of(0).front(), 65535, 65536, cpus_of(0).front()};
    options.cpus = cpus;
    options.cpu_count = 2; // the kernel itself would take the first and drop the second
    THREADS_REFUSED(options, "CPU 65535: this process may not run on it");
    options.count = 1;
    THREADS_REFUSED(options, "CPU 65535: this process may not run on it");
    options.cpus = cpus + 1;
    options.cpu_count = 1; // of which none is left
    THREADS_REFUSED(options, "CPU 65535: this process may not run on it");
    options.cpus = cpus + 2;
    THREADS_REFUSED(options, "CPU 65536");
    const uint32_t twice[] = {cpus[0], cpus[0]};
    options.cpus = twice;
    options.cpu_count = 2;
    THREADS_REFUSED(options, "twice");
    options.struct_size = 3;
    THREADS_REFUSED(options, "struct_size");
    CHECK(stasis_threads_create(nullptr, nullptr, nullptr) == STASIS_INVALID_ARGUMENT);
    stasis_threads_free(nullptr);

    const Pool pool = make_pool(2, nullptr);
    auto of_model = sized<stasis_model_options>();
    of_model.thread_pool = pool.get();
    of_model.threads = 2;
    stasis_model *model = nullptr;
    stasis_error error;
    CHECK(stasis_model_open(test_data(kTwo[0]).c_str(), &of_model, &model, &error) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(contains(error, "thread_pool"));
    CHECK(becomes_true([&] { return live_threads().size() == before + 1; }));
}

// ThreadSanitizer cannot follow a process that forks while it has threads.
#ifndef STASIS_THREAD_SANITIZER

TEST_CASE("stasis_threads_create: in a child of fork() calling threads compute alone") {
    const Pool pool = make_pool(3, "forks");
    Model models[] = {open_in(pool, kTwo[0]), open_in(pool, kTwo[1])};
    const Digest expected[] = {converse(models[0].get(), 1), converse(models[1].get(), 2)};
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(60);
        const bool same = converse(models[0].get(), 1) == expected[0] &&
                          converse(models[1].get(), 2) == expected[1];
        models[0].reset();
        models[1].reset();
        stasis_threads_free(pool.get());
        _exit(same ? 0 : 1);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(converse(models[0].get(), 1) == expected[0]);
}

#endif
