// The loop behind all read probes; `Vector` is what one load takes. Each instruction set's file
// makes its own copy of it.
#pragma once

#include <xmmintrin.h>

#include "tools/bench/ceilings/probes.h"

namespace command::ceilings {
namespace { // so that no two instruction sets share a copy

constexpr size_t kLineBytes = 64;
constexpr size_t kStepBytes = 4 * kLineBytes; // of each stream in turn

template <Hint hint> void prefetch(const char *at) {
    if constexpr (hint == Hint::t0) {
        _mm_prefetch(at, _MM_HINT_T0);
    } else if constexpr (hint == Hint::t1) {
        _mm_prefetch(at, _MM_HINT_T1);
    } else if constexpr (hint == Hint::nta) {
        _mm_prefetch(at, _MM_HINT_NTA);
    }
}

template <typename Vector, unsigned streams, Hint hint> uint64_t read_loop(const ReadPass &pass) {
    const size_t stream_bytes = pass.size_bytes / streams / kStepBytes * kStepBytes;
    Vector sums[4] = {};
    for (size_t at = 0; at < stream_bytes; at += kStepBytes) {
        for (unsigned stream = 0; stream < streams; ++stream) {
            const char *step = pass.data + stream * stream_bytes + at;
            for (size_t line = 0; line < kStepBytes; line += kLineBytes) {
                prefetch<hint>(step + line + pass.distance_bytes);
            }
            for (size_t i = 0; i < kStepBytes; i += sizeof(Vector)) {
                sums[i / sizeof(Vector) % 4] ^= *reinterpret_cast<const Vector *>(step + i);
            }
        }
    }
    const Vector sum = sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
    return static_cast<uint64_t>(sum[0]);
}

template <typename Vector, unsigned streams> uint64_t read_streams(const ReadPass &pass) {
    switch (pass.hint) {
    case Hint::t0:
        return read_loop<Vector, streams, Hint::t0>(pass);
    case Hint::t1:
        return read_loop<Vector, streams, Hint::t1>(pass);
    case Hint::nta:
        return read_loop<Vector, streams, Hint::nta>(pass);
    default:
        return read_loop<Vector, streams, Hint::none>(pass);
    }
}

template <typename Vector> uint64_t read(const ReadPass &pass) {
    switch (pass.streams) {
    case 2:
        return read_streams<Vector, 2>(pass);
    case 4:
        return read_streams<Vector, 4>(pass);
    case 8:
        return read_streams<Vector, 8>(pass);
    default:
        return read_streams<Vector, 1>(pass);
    }
}

} // namespace
} // namespace command::ceilings
