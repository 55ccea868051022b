// Loops that must not be loops: arrays of vectors stay in registers only if every index is a
// constant before the compiler decides where they live.
#pragma once

#include <cstddef>
#include <utility>

namespace stasis::kernels::STASIS_TABLE {

template <typename Body, size_t... i>
[[gnu::always_inline]] inline void unroll(const Body &body, std::index_sequence<i...>) {
    (body.template operator()<i>(), ...);
}

// body<0>(), body<1>(), ... body<n - 1>().
template <size_t n, typename Body> [[gnu::always_inline]] inline void unroll(const Body &body) {
    unroll(body, std::make_index_sequence<n>{});
}

} // namespace stasis::kernels::STASIS_TABLE
