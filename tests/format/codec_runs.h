// Runs for the codec's tests and its fuzzer, and the codec driven over whole runs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "format/checksum.h"
#include "format/codec.h"

namespace stasis::format {

using Numbers = std::vector<uint16_t>;
using Coded = std::vector<uint8_t>;

// Exactly as large as the run, so that a sanitizer sees what reads past its end.
inline Coded encode_run(FrameCoder &coder, const RunShape &shape, const Numbers &numbers) {
    Coded run(encoded_bound(shape));
    for (size_t i = 0; i < frame_count(shape); ++i) {
        coder.encode(shape, i, numbers.data(), run.data());
    }
    return {run.begin(), run.begin() + static_cast<std::ptrdiff_t>(close_run(shape, run.data()))};
}

inline Numbers decode_run(FrameCoder &coder, const RunShape &shape, const Coded &run) {
    Numbers numbers(shape.numbers());
    for (size_t i = 0; i < frame_count(shape); ++i) {
        coder.decode(shape, i, run.data(), run.size(), numbers.data());
    }
    return numbers;
}

// Sets the checksums of the frames that a run's table describes (FORMAT.md, "Codecs"), so that the
// checks after them are reached.
inline void mend_checksums(const RunShape &shape, Coded &run) {
    size_t begin = frame_count(shape) * 16;
    for (size_t i = 0; i < frame_count(shape); ++i) {
        uint32_t entry[4];
        if (run.size() < (i + 1) * sizeof entry) {
            return;
        }
        std::memcpy(entry, run.data() + i * sizeof entry, sizeof entry);
        const uint64_t bytes = uint64_t{entry[0]} + entry[1] + entry[2];
        if (begin > run.size() || bytes > run.size() - begin) {
            return;
        }
        entry[3] = static_cast<uint32_t>(checksum(run.data() + begin, bytes).low);
        std::memcpy(run.data() + i * sizeof entry, entry, sizeof entry);
        begin += bytes;
    }
}

// Like the keys of a trained model: normal, but each channel with a mean and a scale of its own.
inline Numbers like_keys(const RunShape &shape, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    Numbers numbers(shape.numbers());
    for (size_t row = 0; row < shape.rows; ++row) {
        for (size_t channel = 0; channel < shape.channels; ++channel) {
            const float scale = std::exp2(2.0F * normal(random));
            const float mean = scale * normal(random);
            for (size_t slot = 0; slot < shape.slots; ++slot) {
                const float value = mean + scale * normal(random);
                uint32_t bits = 0;
                std::memcpy(&bits, &value, sizeof bits);
                numbers[(row * shape.slots + slot) * shape.channels + channel] =
                    static_cast<uint16_t>(bits >> 16);
            }
        }
    }
    return numbers;
}

inline Numbers random_bits(const RunShape &shape, uint32_t seed) {
    std::mt19937 random(seed);
    Numbers numbers(shape.numbers());
    std::generate(numbers.begin(), numbers.end(),
                  [&random] { return static_cast<uint16_t>(random()); });
    return numbers;
}

} // namespace stasis::format
