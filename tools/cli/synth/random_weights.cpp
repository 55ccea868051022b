// Making random weights; see random_weights.h. Element i of a tensor is made in four steps:
//   1. bits = output i (from 0) of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom
//      number generators", 2014) whose initial state is the 64-bit FNV-1a hash (Fowler, Noll, Vo)
//      of the tensor's name;
//   2. sum = the four 16-bit parts of the bits, added up, less 2 * 65535: an integer with mean 0
//   and
//      the deviation kSumDeviation, nearly normal (the Irwin-Hall distribution of four);
//   3. value = mean + sum * (deviation / kSumDeviation): one product and one sum in f32;
//   4. the value rounded to bf16, nearest even.
// IEEE 754 fixes every step, square roots in `deviation` included. A byte is the lowest of those
// bits that are random, plus the mean.
#include "tools/cli/synth/random_weights.h"

#include <bit>
#include <string_view>

namespace command::synth {

namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;    // SplitMix64's step
constexpr double kSumDeviation = 37837.22723720648; // sqrt(4 * (65536^2 - 1) / 12)

uint64_t hash(std::string_view text) {
    uint64_t value = 0xCBF29CE484222325;
    for (const char byte : text) {
        value = (value ^ static_cast<uint8_t>(byte)) * 0x100000001B3;
    }
    return value;
}

uint64_t mix(uint64_t state) {
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9;
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB;
    return state ^ (state >> 31);
}

// Rounds to nearest even. The value must be finite.
uint16_t round_bf16(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

} // namespace

void fill(const TensorPlan &tensor, uint64_t begin, uint64_t count, uint16_t *weights) {
    const auto mean = static_cast<float>(tensor.mean);
    const auto scale = static_cast<float>(tensor.deviation / kSumDeviation);
    uint64_t state = hash(tensor.name) + begin * kGolden;
    for (uint64_t i = 0; i < count; ++i) {
        state += kGolden;
        const uint64_t bits = mix(state);
        const auto parts = static_cast<int32_t>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) +
                                                (bits >> 32 & 0xFFFF) + (bits >> 48));
        weights[i] = round_bf16(mean + static_cast<float>(parts - 2 * 65535) * scale);
    }
}

void fill(const TensorPlan &tensor, uint64_t begin, uint64_t count, uint8_t *bytes) {
    const uint64_t mask = (1U << tensor.bits) - 1, mean = static_cast<uint64_t>(tensor.mean);
    uint64_t state = hash(tensor.name) + begin * kGolden;
    for (uint64_t i = 0; i < count; ++i) {
        state += kGolden;
        bytes[i] = static_cast<uint8_t>(mean + (mix(state) & mask));
    }
}

} // namespace command::synth
