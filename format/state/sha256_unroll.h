// Loops of the compression functions of SHA-256 whose indices the compiler knows. Always inlined:
// the linker must never take one instruction set's copy for another.
#pragma once

#include <cstddef>
#include <utility>

namespace stasis {

// Calls `body` with each index as a constant, so that arrays of lanes or vectors stay in registers.
template <typename Body, size_t... i>
[[gnu::always_inline]] inline void unroll(const Body &body, std::index_sequence<i...>) {
    (body.template operator()<i>(), ...);
}
template <size_t n, typename Body> [[gnu::always_inline]] inline void unroll(const Body &body) {
    unroll(body, std::make_index_sequence<n>{});
}

} // namespace stasis
