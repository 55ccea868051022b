// The compression function of SHA-256 (FIPS 180-4, 6.2.2) for one, two or three messages side by
// side, in the SHA instructions of x86 (Intel SDM, volume 2: SHA256RNDS2 and others). Compiled with
// options of its own, so it must not include a class whose inline functions could be linked
// elsewhere.
#include "format/state/sha256_x86.h"

#if defined(__SHA__)
#include <cpuid.h>
#include <immintrin.h>

#include "format/state/sha256_unroll.h"
#endif

namespace stasis {

#if defined(__SHA__)

namespace {

__m128i load(const void *from) {
    return _mm_loadu_si128(static_cast<const __m128i *>(from));
}
void store(void *to, __m128i words) {
    _mm_storeu_si128(static_cast<__m128i *>(to), words);
}

template <size_t lanes>
void compress(Sha256State *const *states, const uint8_t *const *data, size_t blocks) {
    // The instructions hold a state as (a, b, e, f) and (c, d, g, h), the first word the highest.
    __m128i abef[lanes], cdgh[lanes];
    unroll<lanes>([&]<size_t l>() {
        const __m128i badc = _mm_shuffle_epi32(load(*states[l]), 0xB1);
        const __m128i efgh = _mm_shuffle_epi32(load(*states[l] + 4), 0x1B);
        abef[l] = _mm_alignr_epi8(badc, efgh, 8);
        cdgh[l] = _mm_blend_epi16(efgh, badc, 0xF0);
    });
    const __m128i big_endian = _mm_set_epi64x(0x0C0D0E0F08090A0B, 0x0405060700010203);
    for (size_t at = 0; at < blocks * 64; at += 64) {
        __m128i abef_before[lanes], cdgh_before[lanes];
        unroll<lanes>([&]<size_t l>() {
            abef_before[l] = abef[l];
            cdgh_before[l] = cdgh[l];
        });
        __m128i w[lanes][4]; // the latest 16 words of the message schedule
        // 16 groups of 4 rounds.
        unroll<16>([&]<size_t r>() {
            unroll<lanes>([&]<size_t l>() {
                __m128i &next = w[l][r % 4];
                if constexpr (r < 4) {
                    next = _mm_shuffle_epi8(load(data[l] + at + 16 * r), big_endian);
                } else {
                    const __m128i last = w[l][(r + 3) % 4];
                    const __m128i middle = _mm_alignr_epi8(last, w[l][(r + 2) % 4], 4);
                    next = _mm_add_epi32(_mm_sha256msg1_epu32(next, w[l][(r + 1) % 4]), middle);
                    next = _mm_sha256msg2_epu32(next, last);
                }
                const __m128i k = _mm_add_epi32(next, load(kSha256Constants + 4 * r));
                cdgh[l] = _mm_sha256rnds2_epu32(cdgh[l], abef[l], k);
                abef[l] = _mm_sha256rnds2_epu32(abef[l], cdgh[l], _mm_shuffle_epi32(k, 0x0E));
            });
        });
        unroll<lanes>([&]<size_t l>() {
            abef[l] = _mm_add_epi32(abef[l], abef_before[l]);
            cdgh[l] = _mm_add_epi32(cdgh[l], cdgh_before[l]);
        });
    }

    // Back to the order of the words.
    unroll<lanes>([&]<size_t l>() {
        const __m128i feba = _mm_shuffle_epi32(abef[l], 0x1B);
        const __m128i ghcd = _mm_shuffle_epi32(cdgh[l], 0xB1);
        store(*states[l], _mm_blend_epi16(feba, ghcd, 0xF0));
        store(*states[l] + 4, _mm_alignr_epi8(ghcd, feba, 8));
    });
}

} // namespace

bool has_sha256_instructions() {
    static const bool has = [] {
        unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
        return __builtin_cpu_supports("sse4.1") != 0 &&
               __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ebx & bit_SHA) != 0;
    }();
    return has;
}

void clear_upper_halves() {
    if (__builtin_cpu_supports("avx") != 0) {
        asm volatile("vzeroupper");
    }
}

void sha256_blocks(size_t lanes, Sha256State *const *states, const uint8_t *const *data,
                   size_t blocks) {
    clear_upper_halves();
    switch (lanes) {
    case 1:
        return compress<1>(states, data, blocks);
    case 2:
        return compress<2>(states, data, blocks);
    default:
        static_assert(kSha256Interleaved == 3);
        return compress<3>(states, data, blocks);
    }
}

#else

bool has_sha256_instructions() {
    return false;
}

void clear_upper_halves() {}

void sha256_blocks(size_t, Sha256State *const *, const uint8_t *const *, size_t) {}

#endif

} // namespace stasis
