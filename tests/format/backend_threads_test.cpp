// Backends under many threads at once; the thread sanitizer runs these.
#include "backends.h"

#include <atomic>
#include <barrier>
#include <mutex>
#include <set>
#include <thread>

using namespace stasis;
using namespace stasis::format;

TEST_CASE("Backend::swap: of two threads that race for a key, one wins") {
    with_backends([](const BackendKind &kind, const std::string &path) {
        const auto one = kind.open(path);
        const auto other = kind.lasts ? kind.open(path) : nullptr;
        constexpr int kRounds = 200;
        std::vector<std::atomic<int>> begun(kRounds), replaced(kRounds);
        std::barrier<> together(2);
        const int failed = run_threads(2, [&](int thread) {
            Backend &backend = thread == 1 && other ? *other : *one;
            for (int round = 0; round < kRounds; ++round) {
                const std::string key = "race/" + std::to_string(round);
                together.arrive_and_wait();
                const std::string mine = std::to_string(thread);
                begun[round] += backend.swap(key, {}, text_bytes("begun" + mine)) ? 1 : 0;
                together.arrive_and_wait();
                const auto marked = backend.get_marked(key);
                together.arrive_and_wait();
                if (marked && backend.swap(key, marked->mark, text_bytes("next" + mine))) {
                    ++replaced[round];
                }
            }
        });
        CHECK(failed == 0);
        for (int round = 0; round < kRounds; ++round) {
            CAPTURE(round);
            CHECK(begun[round] == 1);
            CHECK(replaced[round] == 1);
        }
    });
}

TEST_CASE("Backend::swap: a counter that 16 threads count up loses no number") {
    with_backends([](const BackendKind &kind, const std::string &path) {
        const auto backend = kind.open(path);
        REQUIRE(backend->swap("counter", {}, text_bytes("0")));
        const int failed = run_threads(16, [&](int) {
            for (int done = 0; done < 8;) {
                const Marked there = backend->get_marked("counter").value();
                const int next = std::stoi(std::string(there.bytes.begin(), there.bytes.end())) + 1;
                done +=
                    backend->swap("counter", there.mark, text_bytes(std::to_string(next))) ? 1 : 0;
            }
        });
        CHECK(failed == 0);
        CHECK((backend->get("counter") == text_bytes("128")));
    });
}

TEST_CASE("Backend: 64 threads at once, and nobody sees a part of an object") {
    with_backends([](const BackendKind &kind, const std::string &path) {
        const auto backend = kind.open(path);
        std::atomic<int> torn{0}, seen{0}, wrong{0};
        const int failed = run_threads(64, [&](int thread) {
            for (uint32_t step = 0; step < 12; ++step) {
                const uint32_t seed = (static_cast<uint32_t>(thread) * 5 + step * 3) % 40;
                const std::string key =
                    "objects/" + std::to_string(seed % 8) + "/" + std::to_string(seed);
                const Bytes bytes = whole_bytes(seed, 1000 + seed * 700);
                switch ((static_cast<uint32_t>(thread) + step) % 6) {
                case 0:
                    backend->remove(key);
                    break;
                case 1:
                case 2: {
                    const auto held = backend->lock_to_write();
                    backend->put(key, bytes);
                    break;
                }
                case 3:
                    backend->list("objects/", [&](const ListedObject &each) {
                        const auto number = std::stoul(each.key.substr(each.key.rfind('/') + 1));
                        wrong += each.bytes == 1000 + number * 700 ? 0 : 1;
                        return true;
                    });
                    break;
                case 4: {
                    Bytes range(500);
                    if (backend->read(key, 400, range)) {
                        ++seen;
                        torn += std::equal(range.begin(), range.end(), bytes.begin() + 400) ? 0 : 1;
                    }
                    break;
                }
                default:
                    if (const auto got = backend->get(key)) {
                        ++seen;
                        torn += *got == bytes ? 0 : 1;
                    }
                }
            }
        });
        CHECK(failed == 0);
        CHECK(torn == 0);
        CHECK(wrong == 0);
        CHECK(seen > 0);
    });
}

TEST_CASE("Backend::put: threads that put one object at the same time all succeed") {
    with_backends([](const BackendKind &kind, const std::string &path) {
        const auto backend = kind.open(path);
        for (uint32_t round = 0; round < 10; ++round) {
            std::barrier<> together(16);
            const std::string key = "same/" + std::to_string(round);
            const int failed = run_threads(16, [&](int) {
                together.arrive_and_wait();
                backend->put(key, whole_bytes(round, 5000));
                if (backend->get(key) != whole_bytes(round, 5000)) {
                    throw Error(Status::internal, "not there after the put");
                }
            });
            CHECK(failed == 0);
        }
        CHECK(listed_keys(*backend).size() == 10);
    });
}
