// The bundled models for tests, opened once for each thread count, and their golden values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/kernels/environment.h"
#include "runtime/session/session.h"
#include "runtime/session/step.h"
#include "runtime/snapshot/check.h"
#include "runtime/snapshot/export.h"
#include "runtime/snapshot/restore.h"
#include "tests/data_files.h"
#include "tests/runtime/quantized_model.h"
#include "tests/share.h"

namespace stasis::test {

// Path of a model: a directory below tests/data, or below ../shared/data (empty string if that is
// absent), or a file of quantized_model.h.
inline std::string directory(const std::string &name) {
    if (name.starts_with("quantized/")) {
        return quantized_model(name);
    }
    return name == "stories260K" ? shared_data(name) : test_data(name);
}

inline std::shared_ptr<Model> open(const std::string &name, size_t threads = 2) {
    // Never destroyed: at exit libcrypto is gone before its statics' threads could let go of it.
    static auto &opened = *new std::map<std::pair<std::string, size_t>, std::shared_ptr<Model>>();
    std::shared_ptr<Model> &model = opened[{name, threads}];
    if (model == nullptr) {
        ModelOptions options;
        options.threads = threads;
        model = open_model(directory(name), options);
    }
    return model;
}

// Opened afresh, with the kernels of that table.
inline std::shared_ptr<Model> open_forced(const std::string &name, const std::string &table,
                                          size_t threads) {
    ModelOptions options;
    options.threads = threads;
    options.kernels = table;
    return open_model(directory(name), options);
}

// Bundled models that this build opens, but for the following, which most other tests of models
// have cases of their own for.
inline const std::vector<std::string> &bundled() {
    static const std::vector<std::string> names = {"recall-gemma3",
                                                   "recall-llama",
                                                   "zoo/gemma3-multimodal-prefix",
                                                   "zoo/gemma3-softcap-linear-rope",
                                                   "zoo/gemma3-text",
                                                   "zoo/gemma4-e",
                                                   "zoo/gemma4-moe",
                                                   "zoo/llama-gqa-untied",
                                                   "zoo/llama-mha-bias-f16-sharded",
                                                   "zoo/llama-odd-sizes-f32",
                                                   "zoo/llama3-tied-ropescaled",
                                                   "zoo/ministral3-yarn",
                                                   "zoo/mistral-window",
                                                   "zoo/olmo3",
                                                   "zoo/phi3-longrope",
                                                   "zoo/qwen2-bias-tied",
                                                   "zoo/qwen3-moe",
                                                   "zoo/qwen3-qknorm",
                                                   "zoo/qwen3-yarn",
                                                   "zoo/smollm3-nope"};
    return names;
}

// Bundled models with recurrent layers: Gated DeltaNet, the same with experts, short convolutions,
// Mamba-2.
inline const std::vector<std::string> &bundled_hybrids() {
    static const std::vector<std::string> names = {"zoo/qwen3_5-dense", "zoo/qwen3_5-moe",
                                                   "zoo/lfm2", "zoo/granite4-h"};
    return names;
}

// Bundled models with attention sinks, in all of whose layers are experts.
inline const std::vector<std::string> &bundled_with_sinks() {
    static const std::vector<std::string> names = {"zoo/gpt-oss", "zoo/gpt-oss-mxfp4"};
    return names;
}

// Bundled models that devices compute.
inline std::vector<std::string> bundled_on_devices() {
    std::vector<std::string> names;
    std::copy_if(
        bundled().begin(), bundled().end(), std::back_inserter(names), [](const std::string &name) {
            const Config &config = open(name)->config;
            return config.experts.count == 0 && !config.joint_norms && !config.value_norm &&
                   config.query_growth == 0 && config.long_rope_from() == 0;
        });
    return names;
}

// Returns the models that a run computes with on a slow device or under a sanitizer: all in whole
// sweeps of the optimised build, else one of three, or of five.
inline std::vector<std::string> sampled(const std::vector<std::string> &names) {
    const size_t step = kSanitized ? 5 : whole_sweeps() ? 1 : 3;
    std::vector<std::string> some;
    for (size_t i = test_seed() % std::min(step, names.size()); i < names.size(); i += step) {
        some.push_back(names[i]);
    }
    return some;
}

// Golden tensors of a model (tests/data/README.md): name to values, converted to double-free types.
struct Golden {
    std::vector<uint32_t> ids;
    std::vector<float> logits_bf16p; // [kept][vocabulary]
    std::vector<uint32_t> argmax;    // [n]
    std::vector<float> nll;          // [n - 1]
    size_t kept = 0, vocabulary = 0;
    double rms = 0, max = 0;           // of bf16p - bf16in
    double rms_most = 0, max_most = 0; // the tolerance against bf16p
};

Golden golden(const std::string &name);

// Appends and returns the logits of every appended position.
inline std::vector<std::vector<float>>
append_with_logits(Session &session, std::span<const uint32_t> tokens, size_t chunk = 0) {
    std::vector<std::vector<float>> rows;
    AppendOptions options;
    options.chunk = chunk;
    options.logits_user = &rows;
    options.logits = [](void *user, uint64_t, const float *logits, size_t count) {
        static_cast<std::vector<std::vector<float>> *>(user)->emplace_back(logits, logits + count);
        return true;
    };
    session.append(tokens, options);
    return rows;
}

inline TimelineOptions tracking(Tracking mode = Tracking::by_head) {
    TimelineOptions options;
    options.tracking = mode;
    return options;
}

inline std::vector<float> logits_of(Session &session) {
    return session.logits();
}

inline bool same_bits(const std::vector<float> &a, const std::vector<float> &b) {
    return a.size() == b.size() &&
           (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// `count` tokens of a fixed pseudo-random sequence (Lehmer generator, Park and Miller 1988).
inline std::vector<uint32_t> tokens_for(const Model &model, size_t count, uint64_t seed = 1) {
    std::vector<uint32_t> tokens;
    uint64_t x = seed * 7919 % 2147483647 + 1;
    for (size_t i = 0; i < count; ++i) {
        x = x * 48271 % 2147483647;
        tokens.push_back(static_cast<uint32_t>(x % model.config.vocabulary));
    }
    return tokens;
}

} // namespace stasis::test
