// Which cases of a sweep a run takes: one of `stride()`, from a place that the run's seed names, so
// that the runs of some days take them all. STASIS_TEST_ALL takes whole sweeps; tools/test sets
// both, and prints the seed (STASIS_TEST_SEED; without it the first cases are taken).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "tests/sanitizers.h"

namespace stasis::test {

#if defined(STASIS_ADDRESS_SANITIZER) || defined(STASIS_THREAD_SANITIZER)
inline constexpr bool kSanitized = true; // kernels are some thirty times slower
#else
inline constexpr bool kSanitized = false;
#endif

// A number that the environment may give, such as how long a walk is.
inline uint64_t from_environment(const char *name, uint64_t otherwise) {
    const char *value = std::getenv(name);
    return value != nullptr ? std::strtoull(value, nullptr, 10) : otherwise;
}

inline bool whole_sweeps() {
    static const bool whole = std::getenv("STASIS_TEST_ALL") != nullptr;
    return whole;
}

inline size_t test_seed() {
    static const size_t given = from_environment("STASIS_TEST_SEED", 0);
    return given;
}

inline size_t stride() {
    return kSanitized ? (whole_sweeps() ? 19 : 57) : (whole_sweeps() ? 1 : 8);
}

// The first case taken, below `stride()`.
inline size_t first_case() {
    return test_seed() % stride();
}

// Whether case `index` of a sweep is taken.
inline bool taken(size_t index) {
    return index % stride() == first_case();
}

} // namespace stasis::test
