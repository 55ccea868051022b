// How thinly loops over many cases are sampled.
#pragma once

#include <cstddef>

namespace stasis::test {

// Sanitizers make the kernels some thirty times slower: there, loops over every case take a sample.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr size_t kStride = 19;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr size_t kStride = 19;
#else
inline constexpr size_t kStride = 1;
#endif
#else
inline constexpr size_t kStride = 1;
#endif

} // namespace stasis::test
