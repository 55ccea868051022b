// How a model's files say that a text becomes one vector: sentence-transformers' files beside a
// config.json, or a key of a GGUF file. Knows no tokenizer and no arithmetic.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/model/embedding_dense.h"
#include "runtime/model/gguf/gguf.h"
#include "runtime/model/model_folder.h"

namespace stasis {

class GgufMetadata;

// What a text's final hidden states give; `unknown`: the files do not say.
enum class Pooling : uint32_t { unknown = 0, last = 1, mean = 2 };

struct EmbeddingRules {
    Pooling pooling = Pooling::unknown;
    // Layers that the pooled vector goes through, in order, before it is normalised.
    std::vector<EmbeddingDense> dense;
    bool normalised = true;  // the vector's L2 norm is 1
    uint32_t tokens_max = 0; // of a text; 0: the model's context
    // Texts to put before a text, by the names that files give them, ascending by name.
    std::vector<std::pair<std::string, std::string>> prompts;
    std::string default_prompt; // its name; "": none
    std::string refusal;        // what of the files is not supported; "": nothing

    // Returns how many numbers a vector has, of a model with hidden states of this width.
    uint32_t dimension(uint32_t hidden) const {
        return dense.empty() ? hidden : dense.back().outputs;
    }
};

inline constexpr char kModulesFile[] = "modules.json";

// Read the rules, of a model with hidden states of this width. What is not supported, or makes no
// sense, sets `refusal` instead of throwing, so that the model opens. Throw Error(io).
EmbeddingRules read_embedding_rules(const ModelFolder &folder, uint32_t hidden);
EmbeddingRules read_embedding_rules(const GgufFile &file, uint32_t hidden);

// Returns "last", "mean" or "unknown".
const char *name_of(Pooling pooling);

// Writes the rules as metadata of a GGUF file, in which dense layers are tensors beside them.
// Throws Error(unsupported) for rules that such a file cannot give; prompts, which are texts before
// a text, are left out.
void describe_embedding(const EmbeddingRules &rules, const std::string &architecture,
                        GgufMetadata &metadata);

} // namespace stasis
