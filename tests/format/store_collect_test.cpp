// A collection removes what no session refers to, and nothing else, whoever writes meanwhile.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "format/store/collect.h"
#include "store_case.h"
#include "tests/share.h"

using namespace stasis;
using namespace stasis::format;

TEST_CASE("store: a collection removes what nothing refers to, and all of it") {
    MemoryStore memory;
    const State state = sample_state(large_pages(100));
    memory.put(state, "a");
    const uint64_t one = memory.backend->bytes();
    Collected collected = collect(*memory.backend, {});
    CHECK(collected.removed == 0);
    CHECK(collected.sessions == 1);
    CHECK(collected.objects == keys_of(*memory.backend, kObjectPrefix).size());

    memory.put(sample_state(large_pages(120, 2, 64)), "b");
    memory.store.remove("b");
    const uint64_t before = memory.backend->bytes();
    collected = collect(*memory.backend, {});
    CHECK(memory.backend->bytes() == one);
    CHECK(collected.removed_bytes == before - one);
    CHECK(collected.removed > 0);
    check_same(state, memory.get("a"));

    memory.store.remove("a");
    collect(*memory.backend, {});
    CHECK(memory.backend->bytes() == 0);
    CHECK(collect(*memory.backend, {}).sessions == 0);
}

TEST_CASE("store: without locks a collection removes only what is older than the grace period") {
    MemoryStore memory{std::make_shared<MemoryBackend>(false)};
    memory.backend->set_now(1000);
    const State state = sample_state(large_pages(100));
    memory.put(state, "a");
    memory.put(sample_state(large_pages(120, 2, 64)), "b");
    memory.store.remove("b");
    memory.backend->set_now(1000 + 3599);
    CHECK(collect(*memory.backend, {3600, {}}).removed == 0);
    // What is put again is young again.
    const std::vector<std::string> before = keys_of(*memory.backend, kObjectPrefix);
    memory.put(sample_state(large_pages(120, 2, 64)), "b");
    memory.store.remove("b");
    memory.backend->set_now(1000 + 3601);
    CHECK(collect(*memory.backend, {3600, {}}).removed == 0);
    memory.backend->set_now(1000 + 3599 + 3600);
    CHECK(collect(*memory.backend, {3600, {}}).removed > 3);
    check_same(state, memory.get("a"));
}

TEST_CASE("store: a collection removes nothing where a root or a segment is damaged") {
    MemoryStore memory;
    StorePut put = memory.put(sample_state(large_pages(100)), "a");
    memory.put(sample_state(large_pages(100, 2)), "b");
    memory.store.remove("b");
    const uint64_t before = memory.backend->bytes();
    const std::string segment =
        object_key(memory.store.open("a").ranges->root().segments[0].digest);
    for (const std::string &key : {root_key("a"), segment}) {
        memory.backend->damage(key, 50);
        CHECK(error_of([&] { collect(*memory.backend, {}); }).find(key) != std::string::npos);
        CHECK(memory.backend->bytes() == before);
        memory.backend->damage(key, 50);
    }
    memory.backend->damage(root_key("a"), 50); // such a root can be seen, and removed
    memory.store.list([&](const ListedSession &session) {
        CHECK(session.name == root_key("a"));
        CHECK(session.damage.find("checksum") != std::string::npos);
        return true;
    });
    memory.store.remove("a");
    collect(*memory.backend, {});
    CHECK(memory.backend->bytes() == 0);
}

TEST_CASE("store: a cancelled collection, and one whose backend fails, leave sessions whole") {
    MemoryStore memory;
    const State state = sample_state(large_pages(100));
    memory.put(state, "a");
    memory.put(sample_state(large_pages(100, 2)), "b");
    memory.store.remove("b");
    std::atomic<bool> cancel{true};
    CollectOptions options;
    options.watch.cancel = &cancel;
    CHECK(error_of([&] { collect(*memory.backend, options); }).substr(0, 3) == "11 ");
    cancel = false;
    for (uint64_t call = 1;; ++call) {
        Trouble trouble;
        trouble.fail_at = call;
        memory.backend->trouble(trouble);
        const std::string error = error_of([&] { collect(*memory.backend, {}); });
        const bool reached = memory.backend->calls() >= call;
        memory.backend->trouble({});
        check_same(state, memory.get("a"));
        if (!reached) {
            CHECK(error.empty());
            break;
        }
        CHECK(error.substr(0, 2) == "3 ");
    }
    CHECK(collect(*memory.backend, {}).removed == 0);
}

TEST_CASE("store: threads that write while others collect lose nothing") {
    const ScratchFolder folder;
    for (const bool directory : {false, true}) {
        const std::shared_ptr<Backend> backend =
            directory ? std::shared_ptr<Backend>(open_directory_backend(folder.path("d")))
                      : std::make_shared<MemoryBackend>();
        const Store store(backend);
        constexpr uint64_t kWriters = 8;
        std::vector<State> states[kWriters];
        for (uint64_t i = 0; i < kWriters; ++i) {
            for (uint64_t j = 0; j < 6; ++j) {
                states[i].push_back(sample_state(large_pages(64 + 20 * j, 2 + i % 3, 64)));
            }
        }
        std::atomic<uint64_t> puts{0}, collections{0}, removed{0};
        const auto begin = std::chrono::steady_clock::now();
        const auto running = [&] { // a second, and on a slow disk until there is something to see
            const auto time = std::chrono::steady_clock::now() - begin;
            return time < std::chrono::seconds(1) ||
                   ((collections < 2 || removed < 2) && time < std::chrono::seconds(60));
        };
        std::vector<std::thread> threads;
        std::vector<size_t> last(kWriters);
        std::vector<std::string> errors(kWriters + 2);
        for (uint64_t i = 0; i < kWriters; ++i) {
            threads.emplace_back([&, i] {
                errors[i] = error_of([&] {
                    for (size_t j = 0; j == 0 || running();
                         ++j) { // whole sessions, forks and removals
                        StorePutOptions options;
                        options.overwrite = true;
                        options.repair = j % 7 == 6;
                        store.put(states[i][j % 6], std::to_string(i), options);
                        store.fork(std::to_string(i), std::to_string(i) + " copy", true);
                        if (j % 5 == 4) {
                            store.remove(std::to_string(i) + " copy");
                        }
                        last[i] = j % 6;
                        ++puts;
                    }
                });
            });
        }
        for (size_t i = 0; i < 2; ++i) {
            threads.emplace_back([&, i] {
                errors[kWriters + i] = error_of([&] {
                    while (running()) {
                        removed += collect(*backend, {}).removed;
                        ++collections;
                    }
                });
            });
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        CHECK(errors == std::vector<std::string>(kWriters + 2));
        MESSAGE(puts.load(), " puts, ", collections.load(), " collections, ", removed.load(),
                " objects removed");
        CHECK(collections > 1);
        CHECK(removed > 1);
        for (uint64_t i = 0; i < kWriters; ++i) {
            check_same(states[i][last[i]], whole(store, std::to_string(i)));
        }
        store.list([&](const ListedSession &session) {
            whole(store, session.name);
            return true;
        });
    }
}
