// Where a model comes from: files of a folder, or a GGUF file. Included by model.cpp and
// estimate.cpp only.
#pragma once

#include <optional>
#include <string>

#include "runtime/model/gguf/checkpoint.h"
#include "runtime/model/gguf/config.h"
#include "runtime/session/model.h"

namespace stasis {

struct Origin {
    ModelFolder folder;
    std::optional<GgufFile> gguf; // none: the files of a directory
    bool of_host = false;         // they are a host's

    // Opens a file, but for a directory only finds that it is there. Throws as open_model.
    explicit Origin(const std::string &path);
    // A GGUF file that is open.
    explicit Origin(int descriptor);
    // `name` "": the files of a directory; else that of a GGUF file.
    Origin(const HostFiles &host, const std::string &name);
    Config config() const { return gguf ? read_config(*gguf) : read_config(folder); }
    Checkpoint checkpoint(const Config &config) const {
        return gguf ? checkpoint_of(*gguf, config) : open_checkpoint(folder);
    }
    std::unique_ptr<Tokenizer> tokenizer(const Config &config) const; // null: there is none
    std::optional<ChatTemplate> chat(const Tokenizer &tokenizer,
                                     std::optional<std::time_t> date) const;
    // A recommendation that cannot be used is refused when it is requested, so that the model still
    // opens.
    RecommendedSampling recommended(uint32_t vocabulary) const;
    EmbeddingRules embedding(uint32_t hidden) const {
        return gguf ? read_embedding_rules(*gguf, hidden) : read_embedding_rules(folder, hidden);
    }
    Metadata metadata() const { return gguf ? read_metadata(*gguf) : read_metadata(folder); }
};

// Returns the kernels of a name, the best for "". Throws Error(unsupported).
const kernels::Table *choose_kernels(const std::string &name);
// Throws Error(unsupported) if no session of the network could be rewound.
void check_rewinds(const Network &network);

} // namespace stasis
