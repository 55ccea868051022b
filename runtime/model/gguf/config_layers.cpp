// Reads windows and RoPE of layers from the metadata of a GGUF file; see config_keys.h.
#include <cmath>

#include "format/state/error.h"
#include "runtime/model/config_fields.h"
#include "runtime/model/gguf/config_keys.h"
#include "runtime/model/model_file.h"
#include "runtime/model/rope.h"

namespace stasis {

std::vector<float> parse_rope_factors(const GgufFile &file, const char *name, uint32_t half) {
    if (file.tensors.count(name) == 0) {
        return {};
    }
    const GgufTensor &tensor = file.tensor(name);
    if (tensor.type != GgufType::f32 || tensor.shape != std::vector<uint64_t>{half}) {
        fail(Status::corrupt, "tensor %s in %s: expected F32 [%u]", name,
             file.names[tensor.file].c_str(), half);
    }
    std::vector<float> factors(half);
    file.files[tensor.file]->read(factors.data(), half * sizeof(float), tensor.offset_bytes);
    for (uint32_t i = 0; i < half; ++i) {
        if (!(factors[i] >= 0x1p-126F && factors[i] <= 0x1p127F)) {
            fail(Status::corrupt, "tensor %s in %s: the factor at index %u is not a number above 0",
                 name, file.names[tensor.file].c_str(), i);
        }
    }
    return factors;
}

namespace {

// Reads YaRN as published converters write it: the amplitude itself, or what makes it 1, or
// nothing where it follows from the factor (llama.cpp: conversion/base.py and mistral3.py,
// src/llama-context.cpp). Every reader begins and ends the blend at whole pairs.
void parse_yarn(const Keys &keys, Rope &rope) {
    constexpr char kFast[] = "rope.scaling.yarn_beta_fast";
    constexpr char kWeight[] = "rope.scaling.yarn_log_multiplier";
    rope.scaling = RopeScaling::yarn;
    rope.factor = keys.positive("rope.scaling.factor");
    rope.original_context = keys.count("rope.scaling.original_context_length", kContextMax,
                                       keys.count("context_length", kContextMax));
    rope.turns_fast = keys.positive(kFast, rope.turns_fast);
    rope.turns_slow = keys.positive("rope.scaling.yarn_beta_slow", rope.turns_slow);
    if (rope.turns_fast < rope.turns_slow) {
        keys.refuse(kFast, "a number not below yarn_beta_slow", std::to_string(rope.turns_fast));
    }
    if (rope.base <= 1.0) {
        keys.refuse("rope.freq_base", "a number above 1, which yarn takes the logarithm of",
                    std::to_string(rope.base));
    }
    const std::string extrapolated = keys.name("rope.scaling.yarn_ext_factor");
    if (std::fabs(keys.file.number(extrapolated).value_or(1.0)) != 1.0) { // -1: not set
        unsupported(keys.file, "metadata " + extrapolated + " is not supported");
    }
    rope.amplitude = yarn_amplitude(rope.factor, 1.0);
    if (keys.file.number(keys.name(kWeight)).value_or(0.0) != 0.0) {
        rope.amplitude /= yarn_amplitude(rope.factor, keys.positive(kWeight));
    }
    rope.amplitude = parse_amplitude(keys, "rope.scaling.yarn_attn_factor", rope.amplitude) *
                     keys.positive(kGgufAmplitude, 1.0);
}

} // namespace

double parse_amplitude(const Keys &keys, const char *key, double usual) {
    const double given = keys.positive(key, usual);
    return static_cast<float>(given) == static_cast<float>(usual) ? usual : given;
}

Rope parse_rope(const Keys &keys, double base_fallback) {
    Rope rope;
    rope.base = keys.positive("rope.freq_base", base_fallback);
    const bool scaled = keys.has("rope.scaling.factor");
    const bool scaled_of_old = keys.has("rope.scale_linear");
    const std::string kind = keys.file.text(keys.name("rope.scaling.type"))
                                 .value_or(scaled || scaled_of_old ? "linear" : "none");
    if (kind == "linear") {
        rope.factor =
            keys.positive(scaled_of_old && !scaled ? "rope.scale_linear" : "rope.scaling.factor");
        rope.scaling = rope.factor == 1.0 ? RopeScaling::none : RopeScaling::linear;
    } else if (kind == "yarn") {
        parse_yarn(keys, rope);
    } else if (kind == "longrope") {
        rope.scaling = RopeScaling::longrope; // whose factors are tensors
    } else if (kind != "none") {
        unsupported(keys.file, "metadata " + keys.name("rope.scaling.type") + " is \"" + kind +
                                   "\" (none, linear and yarn are supported)");
    }
    return rope;
}

void read_long_rope(const Keys &keys, Config &config) {
    const uint32_t half = config.rotary() / 2;
    Rope &rope = config.ropes[0];
    rope.long_factors = parse_rope_factors(keys.file, kGgufLongFactors, half);
    if (rope.long_factors.empty() && rope.scaling != RopeScaling::longrope) {
        return;
    }
    rope.factors = parse_rope_factors(keys.file, kGgufShortFactors, half);
    if (rope.factors.empty() || rope.long_factors.empty()) {
        fail(Status::corrupt, "%s: tensor %s of long RoPE is missing", keys.file.names[0].c_str(),
             rope.factors.empty() ? kGgufShortFactors : kGgufLongFactors);
    }
    rope.scaling = RopeScaling::longrope;
    rope.original_context =
        keys.count("rope.scaling.original_context_length", kContextMax, std::nullopt, 2);
    if (config.context <= rope.original_context) {
        unsupported(keys.file, "metadata " + keys.name("context_length") +
                                   " that does not exceed rope.scaling.original_context_length is "
                                   "not supported with long RoPE");
    }
    rope.amplitude = parse_amplitude(keys, kGgufAmplitude,
                                     long_rope_amplitude(config.context, rope.original_context));
}

std::vector<bool> parse_local_layers(const Keys &keys, uint32_t layers, uint32_t fallback) {
    constexpr char kPattern[] = "attention.sliding_window_pattern";
    if (keys.file.is_array(keys.name(kPattern))) {
        std::vector<bool> local = *keys.file.booleans(keys.name(kPattern));
        if (local.size() != layers) {
            keys.refuse(kPattern, "one for each of " + std::to_string(layers) + " layers",
                        std::to_string(local.size()));
        }
        return local;
    }
    const uint32_t pattern = keys.count(kPattern, kLayersMax, fallback, 0);
    std::vector<bool> local(layers);
    for (uint32_t i = 0; i < layers; ++i) {
        local[i] = pattern == 0 || (i + 1) % pattern != 0;
    }
    return local;
}

void set_layers(const Keys &keys, bool windows, Config &config) {
    const uint32_t window = windows ? keys.count("attention.sliding_window", kContextMax, 0, 0) : 0;
    Rope rope = parse_rope(keys, 10000.0);
    rope.factors = parse_rope_factors(keys.file, kGgufRopeFactors, config.rotary() / 2);
    const uint32_t index = rope_index(config, rope);
    for (const bool local : parse_local_layers(keys, config.layers, 0)) {
        config.layer.push_back({local ? window : 0, index});
    }
}

} // namespace stasis
