// For tests of weights: loading a bundled model, and one whose tensors or config a test changes.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/host/threads.h"
#include "runtime/model/weights.h"
#include "tests/data_files.h"
#include "tests/runtime/model_files.h"

namespace stasis {

// The Config of a bundled model whose config.json has a part replaced.
inline Config config_with(const std::string &model, const std::string &from,
                          const std::string &to) {
    std::string text = read_bytes(test_data(model) + "/config.json");
    const size_t at = text.find(from);
    REQUIRE_MESSAGE(at != std::string::npos, from);
    return parse_config(text.replace(at, from.size(), to), "");
}

inline void config_refused(const std::string &model, const std::string &from, const std::string &to,
                           Status status, const char *part) {
    expect_error(status, {part}, [&] { config_with(model, from, to); });
}

struct Loaded {
    Config config;
    Weights weights;
    ModelIdentity identity;
};

inline Loaded load(const std::string &directory, size_t thread_count = 2, const Watch &watch = {}) {
    Loaded loaded;
    loaded.config = read_config(directory);
    Threads threads(thread_count);
    static const Memory heap;
    loaded.weights = load_weights(open_checkpoint(directory), loaded.config, {heap}, threads, watch,
                                  loaded.identity);
    return loaded;
}

// A copy of a bundled model whose tensors a test may change.
struct EditedModel {
    explicit EditedModel(const std::string &model) : source(test_data(model)) {
        tensors = read_tensors_of(source);
        std::filesystem::copy_file(source + "/config.json", directory.file("config.json"));
    }

    Loaded load(size_t padding = 0) const {
        // A new file each time: what was loaded before still maps the old one.
        std::filesystem::remove(directory.file("model.safetensors"));
        write_bytes(directory.file("model.safetensors"), safetensors_bytes(tensors, padding));
        return stasis::load(directory.path());
    }

    void set_config(const std::string &from, const std::string &to) const {
        std::string text = read_bytes(source + "/config.json");
        const size_t at = text.find(from);
        REQUIRE(at != std::string::npos);
        write_bytes(directory.file("config.json"), text.replace(at, from.size(), to));
    }

    std::string source;
    TemporaryDirectory directory;
    StoredTensors tensors;
};

// Names of the parts of two identities that differ: "attention 1", "model", ...
inline std::vector<std::string> differences(const ModelIdentity &a, const ModelIdentity &b) {
    std::vector<std::string> names;
    const auto compare = [&](const std::string &name, bool equal) {
        if (!equal) {
            names.push_back(name);
        }
    };
    compare("architecture", a.architecture == b.architecture);
    compare("config", a.config == b.config);
    compare("embeddings", a.embeddings == b.embeddings);
    compare("norms", a.norms == b.norms);
    REQUIRE(a.attention.size() == b.attention.size());
    for (size_t i = 0; i < a.attention.size(); ++i) {
        compare("attention " + std::to_string(i), a.attention[i] == b.attention[i]);
        compare("mlp " + std::to_string(i), a.mlp[i] == b.mlp[i]);
    }
    compare("head", a.head == b.head);
    compare("model", a.model == b.model);
    return names;
}

template <typename Value> void set_value(StoredTensor &tensor, size_t index, Value value) {
    REQUIRE((index + 1) * sizeof value <= tensor.bytes.size());
    std::memcpy(tensor.bytes.data() + index * sizeof value, &value, sizeof value);
}

inline void expect_refused(const EditedModel &model, Status status,
                           const std::vector<std::string> &parts) {
    expect_error(status, parts, [&] { model.load(); });
}

} // namespace stasis
