// A model family: what its published files are called and say, in both formats, as one row of a
// list. Each family has a file of its own in this folder; what several share stands in decoder.cpp,
// ../config_fields.h and ../gguf/config_keys.h. Names of tensors follow from the Config
// (../weights_plan.cpp, ../gguf/checkpoint.cpp), not from the family.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "format/state/error.h"
#include "runtime/model/config.h"
#include "runtime/model/config_fields.h"
#include "runtime/model/gguf/config_keys.h"

namespace stasis {

inline constexpr uint32_t kNoToken = UINT32_MAX; // outside any vocabulary

struct Family {
    // How config.json names it.
    struct Published {
        const char *model_type, *architecture;
    };

    const char *name;  // Config::architecture
    const char *shown; // in documents
    Published published[2]; // the second may be empty
    // Reads config.json: all but the token ids, unchecked across fields.
    Config (*read)(const Fields &fields);
    uint32_t bos, eos; // where no file says; kNoToken: none

    const char *gguf; // general.architecture
    bool gguf_pairs;  // rows of q and k are stored with the pairs that RoPE turns side by side
    // Reads the metadata that all families do not share: layers, and what differs from a plain
    // decoder. Null: another family of that name reads the file.
    void (*read_gguf)(const Keys &keys, Config &config);
    // Layers without a window in files that do not say: every n-th; 0: none. If it is not 0,
    // readers want a window in any case.
    uint32_t gguf_pattern;
    // Writes what read_gguf reads and no other family has; null: nothing.
    void (*write_gguf)(const Config &config, const WrittenKeys &keys);
};

// All families, in the order in which messages name them.
std::span<const Family *const> families();

// The family of a Config. Expects one that a family has read.
const Family &family_of(const Config &config);

// What a family shaped like Llama has where a file leaves a field out; 0 heads: as many as there
// are query heads, 0 head_dim: hidden_size / heads.
struct DecoderDefaults {
    const char *architecture;
    uint32_t kv_heads, head_dim, context;
    double norm_eps;
};

// Reads all but layers and biases (decoder.cpp).
Config parse_decoder(const Fields &fields, const DecoderDefaults &defaults);

} // namespace stasis
