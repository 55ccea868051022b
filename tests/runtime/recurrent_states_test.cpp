// Which checkpoints a timeline keeps, and the pool of states: its budget, and what it keeps free.
#include "runtime/timeline/recurrent_states.h"

#include <cstdlib>
#include <new>
#include <set>

#include "tests/runtime/models.h"
#include "tests/sanitizers.h"

using namespace stasis;

#if !defined(STASIS_THREAD_SANITIZER) && !defined(STASIS_ADDRESS_SANITIZER)

namespace {

thread_local size_t failing_size = 0; // the next request for so many bytes fails; 0: none

} // namespace

// The program's C++ heap; the sanitizers have one of their own.
void *operator new(std::size_t size) {
    const bool fails = failing_size != 0 && size == failing_size;
    void *memory = fails ? nullptr : std::malloc(size == 0 ? 1 : size);
    if (memory == nullptr) {
        failing_size = 0;
        throw std::bad_alloc();
    }
    return memory;
}
void *operator new(std::size_t size, const std::nothrow_t &) noexcept {
    try {
        return operator new(size);
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}
void operator delete(void *memory) noexcept {
    std::free(memory);
}
void operator delete(void *memory, std::size_t) noexcept {
    std::free(memory);
}

#endif

namespace {

constexpr size_t kNumbers = 32;

PagePool no_pages(const Memory &memory) {
    return {host_pages(memory), UINT64_MAX, {}};
}

// Positions of a log that grew to `end` by passes of at most `chunk` positions.
std::vector<uint64_t> grown(RecurrentStates &states, PagePool &pages, uint64_t end,
                            uint64_t chunk) {
    for (uint64_t at = states.nearest(UINT64_MAX); at < end;) {
        const uint64_t next = std::min({end, at + chunk, next_checkpoint(at)});
        states.add(next, states.take(at, pages), at);
        states.thin(next);
        at = next;
    }
    std::vector<uint64_t> positions;
    for (const auto &each : states.all()) {
        positions.push_back(each.position);
    }
    return positions;
}

} // namespace

TEST_CASE("keeps_checkpoint: near the end every 256th position, then ever fewer, none anew") {
    for (const uint64_t end : {1UL, 256UL, 300UL, 4096UL, 4097UL, 8200UL, 50000UL, 262144UL}) {
        std::set<uint64_t> kept{0};
        for (uint64_t position = 64; position < end; position += 64) {
            if (keeps_checkpoint(position, end)) {
                kept.insert(position);
                CHECK(keeps_checkpoint(position, position + 1));
                CHECK(keeps_checkpoint(position, (position + end) / 2)); // in between as well
            }
        }
        for (uint64_t position = 1; position<end; position += end> 10000 ? 61 : 7) {
            const uint64_t checkpoint = *std::prev(kept.upper_bound(position));
            const uint64_t distance = end - position;
            CHECK(position - checkpoint < (distance <= kCheckpointNear ? 256 : distance));
        }
        CHECK(kept.size() <= 18 + 5 * 7); // seven times the distance doubles up to 2^19
    }
}

TEST_CASE("RecurrentStates: a log keeps the same checkpoints however it grew") {
    const Memory memory;
    StatePool pool(memory, kNumbers, UINT64_MAX / 2);
    PagePool pages = no_pages(memory);
    for (const uint64_t end : {255UL, 256UL, 5000UL, 20000UL}) {
        std::vector<uint64_t> expected;
        for (uint64_t position = 1; position < end; ++position) {
            if (keeps_checkpoint(position, end)) {
                expected.push_back(position);
            }
        }
        expected.push_back(end);
        for (const uint64_t chunk : {1UL, 77UL, 512UL}) {
            RecurrentStates states(pool);
            CHECK(grown(states, pages, end, chunk) == expected);
            CHECK(states.holds(end));
            CHECK(!states.holds(end + 1));
            CHECK(states.nearest(end - 1) == (expected.size() < 2 ? 0 : expected.rbegin()[1]));
            CHECK(!states.at(end - 1).numbers() == !keeps_checkpoint(end - 1, end));
        }
    }
    CHECK(pool.used_bytes() == 0);
}

TEST_CASE("RecurrentStates: within the budget, densest near the end, and never below two states") {
    const Memory memory;
    for (const uint64_t most : {0UL, 2UL, 3UL, 5UL, 9UL}) {
        StatePool pool(memory, kNumbers, most * kNumbers * sizeof(float));
        PagePool pages = no_pages(memory);
        RecurrentStates states(pool);
        for (uint64_t end = 100; end <= 9000; end += 100) {
            const std::vector<uint64_t> positions = grown(states, pages, end, 512);
            CHECK(positions.back() == end);
            // One is free for the next: an append takes it before it gives up another.
            CHECK(positions.size() <= std::max<uint64_t>(most, 2));
            CHECK(pool.used_bytes() + pool.free_bytes() <=
                  std::max<uint64_t>(most, 2) * pool.bytes());
        }
        const auto all = states.all();
        CHECK(all.size() >= std::max<uint64_t>(most, 2) - 1);
        for (size_t i = 2; i + 1 < all.size(); ++i) { // gaps widen away from the end
            CHECK(all[i].position - all[i - 1].position >=
                  (all[i + 1].position - all[i].position) / 2);
        }
    }
}

TEST_CASE("RecurrentStates: what forks share is not given up, for it gives no memory back") {
    const Memory memory;
    StatePool pool(memory, kNumbers, 6 * kNumbers * sizeof(float));
    PagePool pages = no_pages(memory);
    RecurrentStates parent(pool);
    grown(parent, pages, 1500, 512);
    const size_t held = parent.all().size();
    RecurrentStates fork(parent);
    CHECK(pool.used_bytes() == held * pool.bytes());
    grown(fork, pages, 4000, 512);
    CHECK(parent.all().size() == held);
    CHECK(fork.nearest(1300) == parent.nearest(1300));
    CHECK(pool.used_bytes() <= (6 + 2) * pool.bytes()); // two of the fork's own
}

TEST_CASE("StatePool: memory goes from one state to the next, and no more of it than allowed") {
    struct Counter {
        size_t taken = 0, live = 0;
        bool fails = false;
    } counter;
    const Memory memory{&counter,
                        [](void *user, size_t size, size_t alignment) -> void * {
                            auto &own = *static_cast<Counter *>(user);
                            own.taken += own.fails ? 0 : 1;
                            own.live += own.fails ? 0 : 1;
                            return own.fails ? nullptr : std::aligned_alloc(alignment, size);
                        },
                        [](void *user, void *block, size_t, size_t) {
                            --static_cast<Counter *>(user)->live;
                            std::free(block);
                        }};
    {
        StatePool pool(memory, kNumbers, 0);
        StateRef last = pool.take();
        CHECK(reinterpret_cast<uintptr_t>(last.numbers()) % 64 == 0);
        for (size_t i = 0; i < 100; ++i) { // as a session decodes
            StateRef next = pool.take();
            CHECK(next.numbers() != last.numbers());
            last = std::move(next);
        }
        CHECK(counter.taken == 2);
        {
            std::vector<StateRef> many;
            for (size_t i = 0; i < 10; ++i) {
                many.push_back(pool.take());
            }
            const StateRef copy = many[3];
            CHECK(!many[3].unique());
            CHECK(pool.used_bytes() == 11 * pool.bytes());
        }
        CHECK(counter.live <= 12);
        CHECK(pool.free_bytes() + pool.used_bytes() == counter.live * pool.bytes());
        counter.fails = true; // the memory of free states still serves
        std::vector<StateRef> rest;
        for (size_t left = pool.free_bytes() / pool.bytes(); left > 0; --left) {
            rest.push_back(pool.take());
        }
        CHECK_THROWS_AS(pool.take(), Error);
        CHECK(pool.used_bytes() == (1 + rest.size()) * pool.bytes());
    }
    CHECK(counter.live == 0);
}

TEST_CASE("StatePool: many sessions that end leave no more memory than the budget") {
    const Memory memory;
    StatePool pool(memory, kNumbers, 3 * kNumbers * sizeof(float));
    std::vector<StateRef> held;
    for (size_t i = 0; i < 50; ++i) {
        held.push_back(pool.take());
    }
    while (!held.empty()) {
        held.pop_back();
        CHECK(pool.free_bytes() <= std::max(pool.budget_bytes(), pool.used_bytes()));
    }
    CHECK(pool.used_bytes() == 0);
    CHECK(pool.free_bytes() <= pool.budget_bytes());
}

#if !defined(STASIS_THREAD_SANITIZER) && !defined(STASIS_ADDRESS_SANITIZER)
TEST_CASE("RecurrentStates: where the C++ heap gives nothing, a checkpoint is given up as well") {
    const Memory memory;
    StatePool pool(memory, kNumbers, UINT64_MAX / 2);
    PagePool pages = no_pages(memory);
    RecurrentStates states(pool);
    grown(states, pages, 512, 256);
    REQUIRE(states.all().size() == 2);
    std::vector<StateRef> others; // what is free
    while (pool.free_bytes() != 0) {
        others.push_back(pool.take());
    }
    for (const bool given_up : {true, false}) {
        failing_size = sizeof(StateBlock);
        if (given_up) {
            others.push_back(states.take(512, pages));
        } else {
            CHECK_THROWS_AS(states.take(512, pages), Error); // nothing is left to give up
        }
        CHECK(failing_size == 0);
        CHECK(states.all().size() == 1);
        CHECK(states.holds(512));
    }
    others.push_back(states.take(512, pages));
}
#endif
