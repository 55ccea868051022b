// The published shapes that `stasis synth` writes: each model's config.json and its tensors. Must
// not know files or weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace command::synth {

struct TensorPlan {
    std::string name; // as published checkpoints name it
    std::vector<uint64_t> shape;
    double mean, deviation; // of its random weights
    // Not 0: the tensor has bytes, so many bits of which are random, added to the mean.
    unsigned bits = 0;

    uint64_t elements() const;
    uint64_t element_bytes() const { return bits == 0 ? 2 : 1; }
};

struct Shape {
    std::string name;
    bool gemma; // which of the bundled tokenizers belongs to it
    nlohmann::ordered_json config;
    uint64_t vocabulary;
    std::vector<TensorPlan> tensors; // in the order of the file
};

// Returns a shape by its name, cut to its first `layers` (0: all of them). Throws Failure, which
// names all shapes, if none has it, or if it has fewer layers.
Shape find_shape(const std::string &name, uint64_t layers);
// Returns "a, b, c", for help and refusals.
std::string shape_names();

} // namespace command::synth
