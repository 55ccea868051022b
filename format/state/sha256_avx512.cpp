// The compression function of SHA-256 (FIPS 180-4, 6.2.2) for sixteen messages side by side: lane i
// of a vector holds a word of message i, so that an operation of the standard is one of AVX-512. At
// 25 instructions a round for 16 messages this takes 0.55 of the time that the SHA instructions
// take on an Intel with AMX (tools/benchmarks/intel.md). Compiled with options of its own, so it
// must not include a class whose inline functions could be linked elsewhere.
#include "format/state/sha256_x86.h"

#if defined(__AVX512BW__)
#include <immintrin.h>

#include <cassert>

#include "format/state/sha256_unroll.h"
#endif

namespace stasis {

#if defined(__AVX512BW__)

namespace {

using Words = __m512i; // one of each message

Words add(Words a, Words b) {
    return _mm512_add_epi32(a, b);
}
Words exclusive_or(Words a, Words b, Words c) {
    return _mm512_ternarylogic_epi32(a, b, c, 0x96);
}
// The functions Ch and Maj of FIPS 180-4, 4.1.2.
Words choose(Words x, Words y, Words z) {
    return _mm512_ternarylogic_epi32(x, y, z, 0xCA);
}
Words majority(Words x, Words y, Words z) {
    return _mm512_ternarylogic_epi32(x, y, z, 0xE8);
}
// Upper-case sigma, of three rotations, and lower-case sigma, of two and a shift.
template <int r1, int r2, int r3> Words big_sigma(Words x) {
    return exclusive_or(_mm512_ror_epi32(x, r1), _mm512_ror_epi32(x, r2), _mm512_ror_epi32(x, r3));
}
template <int r1, int r2, int shift> Words small_sigma(Words x) {
    return exclusive_or(_mm512_ror_epi32(x, r1), _mm512_ror_epi32(x, r2),
                        _mm512_srli_epi32(x, shift));
}

// From a row for each message to a row for each word.
void transpose(Words (&rows)[16]) {
    Words pairs[16], fours[16], halves[16];
    unroll<8>([&]<size_t i>() {
        pairs[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
        pairs[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
    });
    unroll<8>([&]<size_t i>() {
        constexpr size_t from = i / 2 * 4 + i % 2, to = i / 2 * 4 + i % 2 * 2;
        fours[to] = _mm512_unpacklo_epi64(pairs[from], pairs[from + 2]);
        fours[to + 1] = _mm512_unpackhi_epi64(pairs[from], pairs[from + 2]);
    });
    unroll<8>([&]<size_t i>() {
        constexpr size_t at = i / 4 * 8 + i % 4;
        halves[at] = _mm512_shuffle_i32x4(fours[at], fours[at + 4], 0x88);
        halves[at + 4] = _mm512_shuffle_i32x4(fours[at], fours[at + 4], 0xDD);
    });
    unroll<8>([&]<size_t i>() {
        constexpr size_t to = i / 4 * 4 + i % 4;
        rows[to] = _mm512_shuffle_i32x4(halves[i], halves[i + 8], 0x88);
        rows[to + 8] = _mm512_shuffle_i32x4(halves[i], halves[i + 8], 0xDD);
    });
}

// Round t of a state whose words turn round by one place with each round.
template <size_t t> [[gnu::always_inline]] inline void step(Words (&state)[8], Words word) {
    const Words a = state[(64 - t) % 8], b = state[(65 - t) % 8], c = state[(66 - t) % 8];
    const Words e = state[(68 - t) % 8], f = state[(69 - t) % 8], g = state[(70 - t) % 8];
    Words &d = state[(67 - t) % 8], &h = state[(71 - t) % 8];
    const Words t1 = add(add(h, word), add(big_sigma<6, 11, 25>(e), choose(e, f, g)));
    d = add(d, t1);
    h = add(t1, add(big_sigma<2, 13, 22>(a), majority(a, b, c)));
}

// The 64 rounds on one block of each message, whose words are `words`.
void compress(Words (&state)[8], Words (&words)[16]) {
    Words next[8];
    unroll<8>([&]<size_t i>() { next[i] = state[i]; });
    unroll<16>([&]<size_t t>() {
        const Words constant = _mm512_set1_epi32(static_cast<int>(kSha256Constants[t]));
        step<t>(next, add(words[t], constant));
    });
    for (size_t first = 16; first < 64; first += 16) {
        const uint32_t *constants = kSha256Constants + first;
        unroll<16>([&]<size_t t>() {
            const Words sigmas = add(small_sigma<7, 18, 3>(words[(t + 1) % 16]),
                                     small_sigma<17, 19, 10>(words[(t + 14) % 16]));
            words[t] = add(add(words[t], words[(t + 9) % 16]), sigmas);
            const Words constant = _mm512_set1_epi32(static_cast<int>(constants[t]));
            step<t>(next, add(words[t], constant));
        });
    }
    unroll<8>([&]<size_t i>() { state[i] = add(state[i], next[i]); });
}

} // namespace

bool has_sha256_wide() {
    static const bool has = __builtin_cpu_supports("avx512f") != 0 &&
                            __builtin_cpu_supports("avx512bw") != 0;
    return has;
}

void sha256_wide_blocks(size_t lanes, Sha256State *const *states, const uint8_t *const *data,
                        size_t blocks) {
    assert(lanes >= 1 && lanes <= kSha256Wide);
    alignas(64) uint32_t turned[8][kSha256Wide]; // [word][lane]
    const uint8_t *from[kSha256Wide];
    for (size_t l = 0; l < kSha256Wide; ++l) {
        const size_t lane = l < lanes ? l : 0; // lanes without a message repeat the first
        from[l] = data[lane];
        for (size_t i = 0; i < 8; ++i) {
            turned[i][l] = (*states[lane])[i];
        }
    }
    Words state[8];
    unroll<8>([&]<size_t i>() { state[i] = _mm512_load_si512(turned[i]); });

    // Hardware stops at the end of a page, which is soon for sixteen streams; 2 KiB are no better.
    constexpr size_t kAhead = 512;
    const __m512i big_endian =
        _mm512_broadcast_i32x4(_mm_set_epi64x(0x0C0D0E0F08090A0B, 0x0405060700010203));
    for (size_t at = 0; at < blocks * 64; at += 64) {
        Words words[16];
        unroll<16>([&]<size_t l>() {
            words[l] = _mm512_shuffle_epi8(_mm512_loadu_si512(from[l] + at), big_endian);
            _mm_prefetch(from[l] + at + kAhead, _MM_HINT_T0);
        });
        transpose(words);
        compress(state, words);
    }

    unroll<8>([&]<size_t i>() { _mm512_store_si512(turned[i], state[i]); });
    for (size_t l = 0; l < lanes; ++l) {
        for (size_t i = 0; i < 8; ++i) {
            (*states[l])[i] = turned[i][l];
        }
    }
}

#else

bool has_sha256_wide() {
    return false;
}

void sha256_wide_blocks(size_t, Sha256State *const *, const uint8_t *const *, size_t) {}

#endif

} // namespace stasis
