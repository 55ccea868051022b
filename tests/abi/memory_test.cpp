// Failing allocations, one at a time: NO_MEMORY, nothing changed, nothing lost.
#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>
#include <utility>

#include "tests/abi/fixture.h"

using namespace abi_test;

namespace {

// Allocations of this thread until one fails; negative: none fails.
thread_local int64_t allocations_left = -1;

bool fails_now() {
    return allocations_left >= 0 && allocations_left-- == 0;
}

void *allocate(std::size_t size) {
    void *memory = fails_now() ? nullptr : std::malloc(size == 0 ? 1 : size);
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    return memory;
}

} // namespace

// The library's C++ heap is the program's, so that its failures can be staged here.
void *operator new(std::size_t size) {
    return allocate(size);
}
void *operator new[](std::size_t size) {
    return allocate(size);
}
void *operator new(std::size_t size, const std::nothrow_t &) noexcept {
    return fails_now() ? nullptr : std::malloc(size == 0 ? 1 : size);
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

// Calls with the first allocation failing, then the second, and so on until none does. `unharmed`
// is checked after every failure. Returns how many failed.
int64_t fail_each(const std::function<stasis_status(stasis_error *)> &call,
                  const std::function<void()> &unharmed) {
    for (int64_t n = 0;; ++n) {
        stasis_error error;
        allocations_left = n;
        const stasis_status status = call(&error);
        const bool failed = allocations_left < 0;
        allocations_left = -1;
        if (!failed) {
            CHECK_MESSAGE(status == STASIS_OK, error.message);
            return n;
        }
        if (status != STASIS_OK) { // some failures cost speed only
            CHECK_MESSAGE(status == STASIS_NO_MEMORY, n, ": ", error.message);
            unharmed();
        }
    }
}

} // namespace

TEST_CASE("every allocation of the C++ heap may fail") {
    const Folder folder;
    const Session own = session_of(gemma(), some_tokens(100));
    stasis_session *session = own.get();
    const Digest before = digest(session);
    const std::string path = folder.file("a");
    const auto unharmed = [&] { CHECK(digest(session) == before); };
    const Tokens more = some_tokens(80, 2);

    SUBCASE("create, fork, load") {
        stasis_session *out = nullptr;
        CHECK(fail_each(
                  [&](stasis_error *error) {
                      return stasis_session_create(gemma(), nullptr, &out, error);
                  },
                  [&] { CHECK(out == nullptr); }) > 0);
        stasis_session_free(std::exchange(out, nullptr));
        CHECK(fail_each(
                  [&](stasis_error *error) { return stasis_session_fork(session, &out, error); },
                  [&] { CHECK(out == nullptr); }) > 0);
        stasis_session_free(std::exchange(out, nullptr));
        REQUIRE(save(session, path) == STASIS_OK);
        CHECK(fail_each(
                  [&](stasis_error *error) {
                      return stasis_session_load(gemma(), path.c_str(), nullptr, &out, error);
                  },
                  [&] { CHECK(out == nullptr); }) > 0);
        CHECK(digest(out) == before);
        stasis_session_free(out);
    }
    SUBCASE("append") {
        CHECK(fail_each(
                  [&](stasis_error *error) {
                      return stasis_session_append(session, more.data(), 80, nullptr, error);
                  },
                  unharmed) > 0);
        Tokens all = some_tokens(100);
        all.insert(all.end(), more.begin(), more.end());
        CHECK(digest(session) == digest(session_of(gemma(), all).get()));
    }
    SUBCASE("rewind and what follows it") {
        append(session, more);
        const Digest longer = digest(session);
        CHECK(fail_each(
                  [&](stasis_error *error) {
                      return stasis_session_rewind(session, 100, STASIS_REWIND_RECOMPUTE, nullptr,
                                                   error);
                  },
                  [&] { CHECK(digest(session) == longer); }) > 0);
        stasis_token token = 0;
        fail_each(
            [&](stasis_error *error) { return stasis_session_sample(session, &token, error); },
            [] {});
        unharmed();
    }
    SUBCASE("decode, score, top") {
        stasis_token tokens[5];
        double scores[80];
        fail_each(
            [&](stasis_error *error) {
                return stasis_session_score(session, more.data(), 80, scores, nullptr, error);
            },
            unharmed);
        fail_each(
            [&](stasis_error *error) {
                return stasis_session_top(session, 5, tokens, nullptr, error);
            },
            unharmed);
        fail_each(
            [&](stasis_error *error) { return stasis_session_decode(session, tokens, error); },
            unharmed);
        CHECK(position(session) == 101);
    }
    SUBCASE("save, inspect, compare, verify") {
        CHECK(fail_each(
                  [&](stasis_error *error) {
                      unlink(path.c_str());
                      return save(session, path, 0, error);
                  },
                  [&] {
                      unharmed();
                      if (access(path.c_str(), F_OK) == 0) { // whole, if at all
                          CHECK(digest(load(gemma(), path).get()) == before);
                      }
                  }) > 0);
        stasis_snapshot *out = nullptr;
        CHECK(fail_each(
                  [&](stasis_error *error) {
                      return stasis_snapshot_open(path.c_str(), &out, error);
                  },
                  [&] { CHECK(out == nullptr); }) > 0);
        const Snapshot snapshot(out);
        auto difference = sized<stasis_difference>();
        auto report = sized<stasis_verify_report>();
        fail_each(
            [&](stasis_error *error) {
                return stasis_snapshot_compare(out, out, &difference, error);
            },
            [] {});
        CHECK(fail_each(
                  [&](stasis_error *error) {
                      return stasis_snapshot_verify(out, gemma(), nullptr, &report, error);
                  },
                  unharmed) > 0);
        CHECK(report.verified == 1);
    }
}

namespace {

// A host's allocator that counts, fails on demand and checks what comes back.
struct Host {
    std::atomic<int64_t> live{0}, taken{0}, released{0}, left{-1};

    stasis_allocator allocator() {
        auto result = sized<stasis_allocator>();
        result.user = this;
        result.allocate = [](void *user, size_t size, size_t alignment) -> void * {
            Host &host = *static_cast<Host *>(user);
            if (host.left >= 0 && host.left-- == 0) {
                return nullptr;
            }
            ++host.taken;
            host.live += static_cast<int64_t>(size);
            return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
        };
        result.deallocate = [](void *user, void *memory, size_t size, size_t) {
            static_cast<Host *>(user)->live -= static_cast<int64_t>(size);
            std::free(memory);
        };
        result.release = [](void *user) { ++static_cast<Host *>(user)->released; };
        return result;
    }
};

} // namespace

TEST_CASE("bulk memory comes from the host's allocator, which may fail, and all of it comes back") {
    Host host;
    const stasis_allocator allocator = host.allocator();
    auto options = sized<stasis_model_options>();
    options.allocator = &allocator;
    {
        const Model model = open_path(test_data("zoo/llama-mha-bias-f16-sharded"), &options);
        const int64_t opened = host.taken;
        const Tokens tokens = some_tokens(200);
        const Digest expected =
            digest(session_of(shared_model("zoo/llama-mha-bias-f16-sharded"), tokens).get());
        int64_t failed = 0;
        for (;; ++failed) {
            const Session session = create(model.get());
            stasis_error error;
            host.left = failed;
            const stasis_status status =
                stasis_session_append(session.get(), tokens.data(), 200, nullptr, &error);
            const bool staged = host.left < 0;
            host.left = -1;
            if (!staged) {
                CHECK(status == STASIS_OK);
                CHECK(digest(session.get()) == expected);
                break;
            }
            CHECK_MESSAGE(status == STASIS_NO_MEMORY, error.message);
            CHECK(position(session.get()) == 0);
        }
        CHECK(failed + host.taken > opened);
        CHECK(host.released == 0);
    }
    CHECK(host.live == 0);
    CHECK(host.released == 1);

    // An open that fails does not release what the host still owns.
    stasis_model *model = nullptr;
    CHECK(stasis_model_open("/no/such/model", &options, &model, nullptr) == STASIS_NOT_FOUND);
    for (int64_t n = 0; model == nullptr; ++n) {
        host.left = n;
        const stasis_status status = stasis_model_open(
            test_data("zoo/llama-mha-bias-f16-sharded").c_str(), &options, &model, nullptr);
        host.left = -1;
        CHECK((status == STASIS_NO_MEMORY || status == STASIS_OK));
        CHECK(host.released == 1);
    }
    stasis_model_close(model);
    CHECK(host.live == 0);
    CHECK(host.released == 2);
}
