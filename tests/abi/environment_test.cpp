// The host's floating-point environment and streams: without influence, and left as found.
#include <cfenv>
#include <cstdio>
#include <cstdlib>

#include <xmmintrin.h>

#include "tests/abi/fixture.h"
#include "tests/places.h"

using namespace abi_test;

namespace {

// Everything that computes, in one digest and one token.
std::pair<Digest, stasis_token> work() {
    const Session session = session_of(gemma(), some_tokens(80));
    auto sampling = sized<stasis_sampling>();
    sampling.temperature = 0.8F;
    sampling.top_p = 0.9F;
    sampling.repetition_penalty = 1.1F;
    REQUIRE(stasis_session_set_sampling(session.get(), &sampling, nullptr) == STASIS_OK);
    stasis_token token = 0;
    for (int i = 0; i < 10; ++i) {
        REQUIRE(stasis_session_decode(session.get(), &token, nullptr) == STASIS_OK);
    }
    return {digest(session.get()), token};
}

// Sets the environment for one scope.
class Environment {
  public:
    Environment() { fegetenv(&saved_); }
    ~Environment() { fesetenv(&saved_); }
    Environment(const Environment &) = delete;
    Environment &operator=(const Environment &) = delete;

  private:
    fenv_t saved_;
};

} // namespace

TEST_CASE("stasis_session_append: the host's rounding mode has no influence and stays") {
    const auto expected = work();
    for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
        const Environment environment;
        fesetround(mode);
        const auto found = work();
        const int after = fegetround();
        fesetround(FE_TONEAREST);
        CHECK(after == mode);
        CHECK(found == expected);
    }
}

TEST_CASE("stasis_session_append: exceptions that the host unmasked do not trap, and stay "
          "unmasked; flags stay") {
    const auto expected = work();
    const Environment environment;
    std::feclearexcept(FE_ALL_EXCEPT);
    feenableexcept(FE_ALL_EXCEPT);
    const unsigned before = _mm_getcsr();
    stasis_session *created = nullptr;
    stasis_digest value{};
    const Tokens tokens = some_tokens(80);
    stasis_status status = stasis_session_create(gemma(), nullptr, &created, nullptr);
    status |= stasis_session_append(created, tokens.data(), 80, nullptr, nullptr);
    status |= stasis_session_digest(created, &value, nullptr);
    const unsigned after = _mm_getcsr();
    const int enabled = fegetexcept();
    fedisableexcept(FE_ALL_EXCEPT);
    const Session session(created);
    CHECK(status == STASIS_OK);
    CHECK(after == before);
    CHECK(enabled == FE_ALL_EXCEPT);
    CHECK(std::memcmp(value.bytes, digest(session_of(gemma(), tokens).get()).data(), 32) == 0);
    CHECK(work() == expected);
}

TEST_CASE(
    "stasis_session_append: inside, no exception is unmasked, in either of the processor's units") {
    std::vector<int> enabled;
    auto allocator = sized<stasis_allocator>(); // called from inside, unlike other callbacks
    allocator.user = &enabled;
    allocator.allocate = [](void *user, size_t size, size_t alignment) {
        static_cast<std::vector<int> *>(user)->push_back(fegetexcept());
        return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    };
    allocator.deallocate = [](void *, void *memory, size_t, size_t) { std::free(memory); };
    auto options = sized<stasis_model_options>();
    options.allocator = &allocator;
    options.threads = 1;
    const Environment environment;
    std::feclearexcept(FE_ALL_EXCEPT);
    feenableexcept(FE_ALL_EXCEPT);
    stasis_model *model = nullptr;
    stasis_session *session = nullptr;
    const Tokens tokens = {1, 2, 3};
    const std::string path = test_data("zoo/gemma3-text");
    stasis_status status = stasis_model_open(path.c_str(), &options, &model, nullptr);
    status |= stasis_session_create(model, nullptr, &session, nullptr);
    status |= stasis_session_append(session, tokens.data(), 3, nullptr, nullptr);
    fedisableexcept(FE_ALL_EXCEPT);
    stasis_session_free(session);
    stasis_model_close(model);
    CHECK(status == STASIS_OK);
    REQUIRE(!enabled.empty());
    CHECK(enabled == std::vector<int>(enabled.size(), 0));
}

TEST_CASE("stasis_session_append: flush-to-zero of the host has no influence, nor does its absence "
          "in callbacks") {
    const auto expected = work();
    const Environment environment;
    _mm_setcsr(_mm_getcsr() | 0x8040U); // flush to zero, denormals are zero
    CHECK(work() == expected);
    CHECK((_mm_getcsr() & 0x8040U) == 0x8040U);
    fesetround(FE_UPWARD);
    struct Seen {
        std::vector<unsigned> controls;
    } seen;
    auto options = sized<stasis_run_options>();
    options.progress_user = options.logits_user = &seen;
    options.progress = [](void *user, uint64_t, uint64_t) -> int32_t {
        static_cast<Seen *>(user)->controls.push_back(_mm_getcsr() & 0xFFC0U);
        return 0;
    };
    options.logits = [](void *user, uint64_t, const float *, size_t) -> int32_t {
        static_cast<Seen *>(user)->controls.push_back(_mm_getcsr() & 0xFFC0U);
        _mm_setcsr(0x1F80U); // a callback may do what it likes to its own environment
        return 0;
    };
    const Session session = create(gemma());
    const Tokens tokens = some_tokens(80);
    const stasis_status status =
        stasis_session_append(session.get(), tokens.data(), 80, &options, nullptr);
    const unsigned host = _mm_getcsr() & 0xFFC0U;
    fesetround(FE_TONEAREST);
    CHECK(status == STASIS_OK);
    CHECK(seen.controls.size() > 80);
    CHECK(seen.controls == std::vector<unsigned>(seen.controls.size(), host));
    CHECK(digest(session.get()) == digest(session_of(gemma(), tokens).get()));
}

TEST_CASE("stasis_error: nothing is written to the standard streams, not even by failures") {
    std::fflush(stdout);
    std::fflush(stderr);
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const int out = dup(1), err = dup(2);
    dup2(ends[1], 1);
    dup2(ends[1], 2);
    stasis_model *model = nullptr;
    stasis_session *session = nullptr;
    stasis_snapshot *snapshot = nullptr;
    const Tokens tokens = {1, 2, 3, 4000};
    stasis_token token = 0;
    stasis_model_open("/no/such/model", nullptr, &model, nullptr);
    stasis_model_open(test_data("recall-gemma3").c_str(), nullptr, &model, nullptr);
    stasis_session_create(model, nullptr, &session, nullptr);
    stasis_session_decode(session, &token, nullptr);
    stasis_session_append(session, tokens.data(), 4, nullptr, nullptr);
    stasis_session_append(session, tokens.data(), 3, nullptr, nullptr);
    stasis_session_decode(session, &token, nullptr);
    stasis_session_append_message(session, "nobody", "\xFF", 1, 0, nullptr, nullptr);
    stasis_session_save(session, "/no/such/folder/file", nullptr, nullptr);
    stasis_snapshot_open(places::library, &snapshot, nullptr);
    stasis_session_free(session);
    stasis_model_close(model);
    std::fflush(stdout);
    std::fflush(stderr);
    dup2(out, 1);
    dup2(err, 2);
    close(out);
    close(err);
    close(ends[1]);
    char byte = 0;
    CHECK(read(ends[0], &byte, 1) == 0);
    close(ends[0]);
    CHECK(snapshot == nullptr);
}
