// The host's allocator: used for bulk memory, free to fail, given everything back.
#include <atomic>
#include <cstdlib>

#include "tests/abi/fixture.h"
#include "tests/runtime/quantized_model.h"

using namespace abi_test;

namespace {

// A host's allocator that counts, fails on demand and checks what comes back.
struct AllocatingHost {
    std::atomic<int64_t> live{0}, taken{0}, released{0}, left{-1};
    int64_t live_at_release = -1;

    stasis_allocator allocator() {
        auto result = sized<stasis_allocator>();
        result.user = this;
        result.allocate = [](void *user, size_t size, size_t alignment) -> void * {
            AllocatingHost &host = *static_cast<AllocatingHost *>(user);
            if (host.left >= 0 && host.left-- == 0) {
                return nullptr;
            }
            ++host.taken;
            host.live += static_cast<int64_t>(size);
            return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
        };
        result.deallocate = [](void *user, void *memory, size_t size, size_t) {
            static_cast<AllocatingHost *>(user)->live -= static_cast<int64_t>(size);
            std::free(memory);
        };
        result.release = [](void *user) {
            AllocatingHost &host = *static_cast<AllocatingHost *>(user);
            ++host.released;
            host.live_at_release = host.live;
        };
        return result;
    }
};

void check_allocator(const std::string &path) {
    AllocatingHost host;
    const stasis_allocator allocator = host.allocator();
    auto options = sized<stasis_model_options>();
    options.allocator = &allocator;
    {
        const Model model = open_path(path, &options);
        const int64_t opened = host.taken;
        const Tokens tokens = some_tokens(200);
        const Digest expected = digest(session_of(open_path(path).get(), tokens).get());
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
    CHECK(host.live_at_release == 0);
    CHECK(host.released == 1);

    // An open that fails does not release what the host still owns.
    stasis_model *model = nullptr;
    CHECK(stasis_model_open("/no/such/model", &options, &model, nullptr) == STASIS_NOT_FOUND);
    for (int64_t n = 0; model == nullptr; ++n) {
        host.left = n;
        const stasis_status status = stasis_model_open(path.c_str(), &options, &model, nullptr);
        host.left = -1;
        CHECK((status == STASIS_NO_MEMORY || status == STASIS_OK));
        CHECK(host.released == 1);
    }
    stasis_model_close(model);
    CHECK(host.live == 0);
    CHECK(host.released == 2);
}

} // namespace

// A model of f16 weights, which are converted, and one of integers, which are put into strips.
TEST_CASE("stasis_allocator: bulk memory comes from the host's allocator, which may fail, and all "
          "of it comes back") {
    for (const std::string &path : {test_data("zoo/llama-mha-bias-f16-sharded"),
                                    stasis::test::quantized_model("quantized/llama")}) {
        CAPTURE(path);
        check_allocator(path);
    }
}
