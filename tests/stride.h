// How thinly loops over many cases are sampled.
#pragma once

#include <cstddef>

#include "tests/sanitizers.h"

namespace stasis::test {

// Sanitizers make the kernels some thirty times slower: there, loops over every case take a sample.
#if defined(STASIS_ADDRESS_SANITIZER) || defined(STASIS_THREAD_SANITIZER)
inline constexpr size_t kStride = 19;
#else
inline constexpr size_t kStride = 1;
#endif

} // namespace stasis::test
