// For tests of embeddings: vectors of tokens and texts, and a bundled model with files that say how
// it pools.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/session/embed.h"
#include "tests/runtime/model_files.h"
#include "tests/runtime/models.h"

namespace stasis::test {

using Vectors = std::vector<std::vector<float>>;
using TokenLists = std::vector<std::vector<uint32_t>>;

inline Vectors embedded(Model &model, std::span<const EmbedInput> inputs,
                        const EmbedOptions &options = {}) {
    const kernels::FloatEnvironment environment;
    const size_t width = model.embedding.dimension(model.config.hidden);
    std::vector<float> numbers(inputs.size() * width);
    embed(model, inputs, options, numbers.data());
    Vectors vectors;
    for (size_t i = 0; i < inputs.size(); ++i) {
        vectors.emplace_back(numbers.begin() + static_cast<ptrdiff_t>(i * width),
                             numbers.begin() + static_cast<ptrdiff_t>((i + 1) * width));
    }
    return vectors;
}

inline Vectors embedded(Model &model, const TokenLists &lists, const EmbedOptions &options = {}) {
    std::vector<EmbedInput> inputs;
    for (const std::vector<uint32_t> &tokens : lists) {
        inputs.push_back({tokens, {}, false});
    }
    return embedded(model, inputs, options);
}

inline std::vector<float> embedded_text(Model &model, std::string_view text,
                                        const EmbedOptions &options = {}) {
    const EmbedInput input{{}, text, true};
    return embedded(model, std::span(&input, 1), options).front();
}

inline EmbedOptions pooled(Pooling pooling) {
    EmbedOptions options;
    options.pooling = pooling;
    return options;
}

inline bool same_vectors(const Vectors &a, const Vectors &b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_bits);
}

inline constexpr char kLastToken[] = R"({"word_embedding_dimension": 64,
    "pooling_mode_mean_tokens": false, "pooling_mode_lasttoken": true, "include_prompt": true})";
inline constexpr char kModules[] =
    R"([{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}])";
inline constexpr char kPrompts[] = R"({"prompts": {"query": "Find: ", "document": ""},
                                       "default_prompt_name": null})";

// A copy of a bundled model, to which sentence-transformers' files are added unless it has its own.
struct EmbeddingModel {
    explicit EmbeddingModel(const std::string &model, bool adds = true) {
        std::filesystem::copy(test_data(model), path.path(),
                              std::filesystem::copy_options::overwrite_existing |
                                  std::filesystem::copy_options::recursive);
        if (!adds) {
            return;
        }
        std::filesystem::create_directories(path.file("1_Pooling"));
        write("modules.json", kModules);
        write("1_Pooling/config.json", kLastToken);
        write("config_sentence_transformers.json", kPrompts);
    }
    void write(const std::string &name, const std::string &text) const {
        write_bytes(path.file(name), text);
    }
    // Replaces text in a file.
    void replace(const std::string &name, const std::string &from, const std::string &to) const {
        std::string text = read_bytes(path.file(name));
        const size_t at = text.find(from);
        REQUIRE(at != std::string::npos);
        write(name, text.replace(at, from.size(), to));
    }
    std::shared_ptr<Model> open() const { return open_model(path.path(), {}); }

    TemporaryDirectory path;
};

} // namespace stasis::test
