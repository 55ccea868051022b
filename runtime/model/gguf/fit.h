// What the encoders of blocks have in common that choose scales by weighted least squares: a part's
// values with their weights, in four lanes, whose sums have a fixed order. Included by blocks_*.cpp
// only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "runtime/model/f16.h"
#include "runtime/model/gguf/blocks.h"

namespace stasis {

inline constexpr size_t kLanes = 4;
using Lanes = float __attribute__((vector_size(16)));

inline float sum(Lanes lanes) {
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

// Rounds to nearest even, for magnitudes below 2^22: beyond 1.5 * 2^23 an f32 has no fraction.
inline float nearest(float value) {
    return (value + 0x1.8p23F) - 0x1.8p23F;
}
inline Lanes nearest(Lanes value) {
    return (value + 0x1.8p23F) - 0x1.8p23F;
}
inline Lanes at_most(Lanes value, float most) {
    return value < most ? value : Lanes{} + most;
}
inline Lanes at_least(Lanes value, float least) {
    return value > least ? value : Lanes{} + least;
}

// One part's values and their weights.
template <size_t Count> struct Part {
    static constexpr size_t kCount = Count;
    Lanes x[Count / kLanes], w[Count / kLanes];
    float least, most;

    explicit Part(const float *values) {
        std::memcpy(x, values, sizeof x);
        const auto ends = std::minmax_element(values, values + Count);
        least = *ends.first;
        most = *ends.second;
        // A value's weight is its magnitude plus the root mean square of the part.
        Lanes squares{};
        for (const Lanes &four : x) {
            squares += four * four;
        }
        const float mean = std::sqrt(sum(squares) / static_cast<float>(Count));
        for (size_t i = 0; i < Count / kLanes; ++i) {
            w[i] = mean + (x[i] < 0.0F ? -x[i] : x[i]);
        }
    }
};

// Stores a value as f16, and returns the stored value.
inline float stored(float value, uint8_t *out) {
    const uint16_t bits = f32_to_f16(value);
    std::memcpy(out, &bits, sizeof bits);
    return f16_to_f32(bits);
}

} // namespace stasis
