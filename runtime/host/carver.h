// Cuts one allocation into arrays. With a null base it only counts how large the allocation is.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stasis {

// kAlignment is in bytes: each array begins at a multiple of it from the base.
template <size_t kAlignment> struct Carver {
    uint8_t *base;
    size_t used = 0; // bytes

    // Returns the next array, of `count` elements; null if `base` is null.
    template <typename T> T *take(size_t count) {
        T *piece = base == nullptr ? nullptr : reinterpret_cast<T *>(base + used);
        used += (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
        return piece;
    }
};

} // namespace stasis
