// A model family: the names and fields of its published files, in both formats, as one row of a
// list. Each family has a file of its own in this folder; shared code is in decoder.cpp,
// ../config_fields.h and ../gguf/config_keys.h. Names of tensors follow from the Config
// (../weights_plan.cpp, ../gguf/checkpoint.cpp), not from the family.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "format/state/error.h"
#include "runtime/model/config.h"
#include "runtime/model/config_fields.h"
#include "runtime/model/gguf/config_keys.h"

namespace stasis {

inline constexpr uint32_t kNoToken = UINT32_MAX; // outside any vocabulary

struct Family {
    // The names in config.json.
    struct Published {
        const char *model_type, *architecture;
    };

    const char *name;       // Config::architecture
    const char *shown;      // the name in documents
    Published published[2]; // the second may be empty
    // Reads config.json except the token ids, without checks across fields.
    Config (*read)(const Fields &fields);
    uint32_t bos, eos; // if no file names them; kNoToken: none

    const char *gguf; // general.architecture
    bool gguf_pairs;  // rows of q and k are stored with RoPE pairs interleaved
    // Reads the metadata that families do not share: layers, and differences from a plain decoder.
    // Null: another family with the same GGUF name reads the file.
    void (*read_gguf)(const Keys &keys, Config &config);
    // Every n-th layer has no window in files without a pattern; 0: no such layers. If it is not 0,
    // readers require a window in any case.
    uint32_t gguf_pattern;
    // Writes the metadata that only this family's read_gguf reads; null: nothing.
    void (*write_gguf)(const Config &config, const WrittenKeys &keys);
    // Reads the sizes of heads and MLPs from metadata in which layers with and without a window
    // have their own; null: all layers have the same.
    void (*read_gguf_sizes)(const Keys &keys, Config &config) = nullptr;
    // Writes them, in place of those of all layers.
    void (*write_gguf_sizes)(const Config &config, const WrittenKeys &keys) = nullptr;
    // GGUF files list the layers with a window one by one, and have the factors of global layers'
    // RoPE, whatever they are.
    bool gguf_lists = false;
    bool bidirectional = false; // config.json may say use_bidirectional_attention
    bool part_turned = false;   // RoPE may turn a part of each head
    // The quant_method of config.json whose checkpoints can be read; null: none.
    const char *quantised = nullptr;
    bool layers_without_heads = false; // GGUF files give layers without attention no heads
    const char *limits = ""; // what is not supported of it, for documents (tools/supported)
};

extern const Family kLlama, kMistral, kPhi3, kQwen2, kQwen3, kQwen3Moe, kQwen35, kQwen35Moe,
    kGemma3, kEmbeddingGemma, kGemma4, kGptOss, kLfm2, kSmolLM3, kMinistral3, kOlmo3, kGranite4;

// Returns all families, in the order in which messages name them.
std::span<const Family *const> families();

// Returns the family of a Config that a family has read.
const Family &family_of(const Config &config);

// Defaults of absent fields in a family shaped like Llama. 0 heads: as many as query heads; 0
// head_dim: hidden_size / heads.
struct DecoderDefaults {
    const char *architecture;
    uint32_t kv_heads, head_dim, context;
    double norm_eps;
    std::optional<uint32_t> intermediate = {}; // empty: the field is required
};

// Reads everything but layers and biases (decoder.cpp).
Config parse_decoder(const Fields &fields, const DecoderDefaults &defaults);

} // namespace stasis
