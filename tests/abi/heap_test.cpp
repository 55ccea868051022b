// No allocation of the C++ heap while tokens are decoded. (tests/failures makes those that there
// are fail.) Not under the thread sanitizer, which has an operator new of its own.
#include "tests/sanitizers.h"

#ifndef STASIS_THREAD_SANITIZER

#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/abi/fixture.h"

using namespace abi_test;

namespace {

std::atomic<int64_t> allocations{0}; // of all threads, those of the host's allocator included

void *allocate(std::size_t size) {
    ++allocations;
    void *memory = std::malloc(size == 0 ? 1 : size);
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    return memory;
}

} // namespace

// The library's C++ heap is the program's, so that its allocations can be counted.
void *operator new(std::size_t size) {
    return allocate(size);
}
void *operator new[](std::size_t size) {
    return allocate(size);
}
void *operator new(std::size_t size, const std::nothrow_t &) noexcept {
    ++allocations;
    return std::malloc(size == 0 ? 1 : size);
}
void operator delete(void *memory) noexcept {
    std::free(memory);
}
void operator delete[](void *memory) noexcept {
    std::free(memory);
}
void operator delete(void *memory, std::size_t) noexcept {
    std::free(memory);
}
void operator delete[](void *memory, std::size_t) noexcept {
    std::free(memory);
}

namespace {

// A bundled model whose bulk memory is counted as well.
Model open_counted(const std::string &name) {
    auto allocator = sized<stasis_allocator>();
    allocator.allocate = [](void *, size_t size, size_t alignment) {
        ++allocations;
        return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    };
    allocator.deallocate = [](void *, void *memory, size_t, size_t) { std::free(memory); };
    auto options = sized<stasis_model_options>();
    options.allocator = &allocator;
    options.threads = 2;
    return open_path(test_data(name), &options);
}

void sample_widely(stasis_session *session) {
    auto sampling = sized<stasis_sampling>();
    sampling.temperature = 3.0F; // tokens of all lengths
    sampling.top_p = 0.9F;
    sampling.repetition_penalty = 1.1F;
    REQUIRE(stasis_session_set_sampling(session, &sampling, nullptr) == STASIS_OK);
}

} // namespace

namespace {

// Returns whether a page begins or ends at the position, or a node of the log begins.
bool page_or_node(uint64_t position) {
    return position % 64 == 63 || position % 32 == 0;
}

// The same for positions computed up to 8 ahead, by a draft model too, and by the first pass of
// each kind after them; and for the first such passes.
bool page_or_node_ahead(uint64_t position) {
    return position % 32 <= 9 || position % 32 >= 22 || position < 50;
}

// Generates 300 tokens after 10. Returns the positions of the tokens between whose events something
// was allocated. The first token may allocate, and so may the first work of a draft model.
std::vector<uint64_t> positions_of_allocations(stasis_session *session,
                                               uint32_t log_probabilities = 0) {
    struct Seen {
        int64_t before = -1;
        std::vector<uint64_t> positions;
    } seen;
    const char *stop[] = {"no such text"};
    auto generate = sized<stasis_generate_options>();
    generate.tokens_max = 300;
    generate.flags = STASIS_GENERATE_IGNORE_END;
    generate.stop_strings = stop;
    generate.stop_string_count = 1;
    generate.log_probability_count = log_probabilities;
    generate.callback_user = &seen;
    generate.callback = [](void *user, const stasis_generated *event) -> int32_t {
        auto &into = *static_cast<Seen *>(user);
        if (into.before >= 0 && allocations != into.before) {
            into.positions.push_back(event->position);
        }
        into.before = allocations;
        return 0;
    };
    REQUIRE(stasis_session_generate(session, &generate, nullptr, nullptr) == STASIS_OK);
    return seen.positions;
}

void check_warm(const char *name, std::vector<uint64_t> positions, bool (*expected)(uint64_t)) {
    CHECK(!positions.empty()); // it counts
    std::erase_if(positions, expected);
    CHECK_MESSAGE(positions.empty(), std::string(name), ": ", positions.size(), " tokens, first ",
                  positions.empty() ? 0 : positions[0]);
}

} // namespace

TEST_CASE(
    "stasis_session_decode: decoding allocates nothing but pages and the nodes that name them") {
    struct Case {
        const char *name;
        bool everything; // all steps of sampling, and log-probabilities
    };
    for (const Case &each :
         {Case{"recall-gemma3", false}, Case{"recall-llama", false}, Case{"recall-llama", true}}) {
        const Model model = open_counted(each.name);
        const Session session = create(model.get(), 0, 0, STASIS_DOMAIN_COMMON);
        append(session.get(), some_tokens(10));
        auto sampling = sized<stasis_sampling>();
        sampling.temperature = 3.0F; // tokens of all lengths
        sampling.top_p = 0.9F;
        sampling.repetition_penalty = 1.1F;
        if (each.everything) {
            sampling.typical_p = 0.99F;
            sampling.top_n_sigma = 4;
            sampling.xtc_probability = 0.5F;
            sampling.dry_multiplier = 0.8F;
            sampling.min_keep = 20;
        }
        REQUIRE(stasis_session_set_sampling(session.get(), &sampling, nullptr) == STASIS_OK);
        check_warm(each.name, positions_of_allocations(session.get(), each.everything ? 5 : 0),
                   page_or_node);
    }
}

TEST_CASE("stasis_session_generate: speculative decoding allocates nothing else, but does so up to "
          "eight tokens earlier") {
    for (const char *name : {"recall-gemma3", "recall-llama"}) {
        for (const bool lookup : {true, false}) {
            const Model model = open_counted(name);
            const Session session = session_of(model.get(), Tokens(30, 5)); // repeats itself
            auto draft = sized<stasis_draft_options>();
            draft.tokens_min = draft.tokens_max = 8;
            REQUIRE(stasis_session_set_draft(session.get(), lookup ? nullptr : model.get(), &draft,
                                             nullptr) == STASIS_OK);
            check_warm(name, positions_of_allocations(session.get()), page_or_node_ahead);
        }
    }
}

TEST_CASE("stasis_session_decode: with its pages reserved, warm decoding takes no memory at all") {
    for (const char *name : {"recall-gemma3", "recall-llama"}) {
        const Model model = open_counted(name);
        auto options = sized<stasis_session_options>();
        options.reserve = 400;
        std::vector<int64_t> of_session; // the first one finds nothing warm
        for (int i = 0; i < 3; ++i) {
            stasis_session *out = nullptr;
            REQUIRE(stasis_session_create(model.get(), &options, &out, nullptr) == STASIS_OK);
            const Session session(out);
            append(out, some_tokens(30));
            sample_widely(out);
            stasis_token token = 0;
            REQUIRE(stasis_session_decode(out, &token, nullptr) == STASIS_OK);
            int64_t taken = 0;
            for (uint64_t at = position(out); at < 400; ++at) {
                const int64_t before = allocations;
                REQUIRE(stasis_session_decode(out, &token, nullptr) == STASIS_OK);
                // The digest of a page that is full is computed by all threads, from a list.
                taken += at % 64 == 63 ? 0 : allocations - before;
            }
            of_session.push_back(taken);
        }
        CHECK(of_session[0] > 0); // it counts
        CHECK(of_session[1] == 0);
        CHECK(of_session[2] == 0);
    }
}

TEST_CASE("stasis_sessions_step: steps of several sessions allocate nothing but pages and the "
          "nodes that name them") {
    for (const char *name : {"recall-gemma3", "recall-llama"}) {
        const Model model = open_counted(name);
        std::vector<Session> sessions;
        std::vector<stasis_step_item> items(5, sized<stasis_step_item>());
        for (stasis_step_item &item : items) {
            const auto length = static_cast<uint32_t>(3 + 100 * sessions.size());
            sessions.push_back(session_of(model.get(), some_tokens(length, length)));
            sample_widely(sessions.back().get());
            item.session = sessions.back().get();
        }
        const Tokens more = some_tokens(7);
        std::vector<int> counted;
        for (int round = 0; round < 150; ++round) {
            bool edge = round < 2; // nothing is warm
            for (size_t i = 0; i < items.size(); ++i) {
                const bool prefill = round % 3 == 0 && i == 1 + round % 4u; // beside the others
                items[i].count = prefill ? more.size() : 0;
                items[i].flags = prefill && round % 2 == 0 ? 0 : STASIS_STEP_SAMPLE;
                const uint64_t begin = position(items[i].session), end = begin + items[i].count + 1;
                // A page or a node of the log begins, or a page is full.
                edge |= (begin + 31) / 32 != (end + 31) / 32 || begin / 64 != end / 64;
            }
            const int64_t before = allocations;
            REQUIRE(stasis_sessions_step(items.data(), sizeof items[0], items.size(), more.data(),
                                         more.size(), nullptr, nullptr) == STASIS_OK);
            const int64_t after = allocations;
            for (const stasis_step_item &item : items) {
                REQUIRE(item.status == STASIS_OK);
            }
            if (edge) {
                CHECK((round > 0 || after != before)); // it counts
            } else {
                counted.push_back(round);
                CHECK_MESSAGE(after == before, name, ": round ", round, ": ", after - before);
            }
        }
        CHECK(counted.size() > 20);
    }
}

#endif // STASIS_THREAD_SANITIZER
