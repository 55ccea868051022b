// Whether the program is built with a sanitizer, from what g++ defines and what clang++ answers.
#pragma once

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define STASIS_ADDRESS_SANITIZER
#endif
#if __has_feature(thread_sanitizer)
#define STASIS_THREAD_SANITIZER
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define STASIS_ADDRESS_SANITIZER
#endif
#if defined(__SANITIZE_THREAD__)
#define STASIS_THREAD_SANITIZER
#endif
