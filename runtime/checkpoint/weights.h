// The weights of one model as the forward pass wants them, and their digests. Immutable after
// loading. bf16 matrices point into the checkpoint's mapping; f16 and f32 ones are rounded to bf16
// once (C6). Norm weights and biases are small and kept as f32.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "format/digest.h"
#include "format/state.h"
#include "format/watch.h"
#include "runtime/checkpoint/config.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/memory.h"

namespace stasis {

class Threads;

struct Matrix {
    const uint16_t *data = nullptr; // [rows][columns] bf16, row-major
    size_t rows = 0;                // outputs
    size_t columns = 0;             // inputs
    const float *bias = nullptr;    // [rows] f32, null: none
};

struct LayerWeights {
    Matrix query, key, value, output; // [heads*head_dim][hidden], ..., [hidden][heads*head_dim]
    Matrix gate, up, down;            // [intermediate][hidden] twice, [hidden][intermediate]
    const float *attention_norm = nullptr;      // [hidden] before attention (1 + w folded in)
    const float *post_attention_norm = nullptr; // [hidden], null: none
    const float *mlp_norm = nullptr;            // [hidden] before the MLP
    const float *post_mlp_norm = nullptr;       // [hidden], null: none
    const float *query_norm = nullptr;          // [head_dim], null: none
    const float *key_norm = nullptr;            // [head_dim], null: none
};

struct Weights {
    Matrix embeddings;                      // [vocabulary][hidden] bf16; also the tied head
    const float *wide_embeddings = nullptr; // the same as stored, where that is wider than bf16:
                                            // looking up a row is no matrix product (C6)
    Matrix head;                            // [vocabulary][hidden]; the embeddings where tied
    const float *final_norm = nullptr;      // [hidden]
    std::vector<LayerWeights> layers;

    bool converted = false; // some matrix was stored in another type and rounded to bf16
    Checkpoint checkpoint;  // keeps the mappings
    std::vector<std::unique_ptr<Buffer>> converted_storage;
    std::vector<std::vector<float>> float_storage;
};

// Finds and checks every tensor that `config` calls for (name, dtype, shape), refuses tensors it
// does not know by name (buffers that published checkpoints carry, like rotary inv_freq, and a
// vision tower beside a text model excepted), refuses non-finite values naming tensor and index,
// and fills the digests of `identity` (embeddings, norms, attention, mlp, head, model) from the
// values as stored in the file. Converted matrices lie in `memory`. Work is split over `threads`.
// Progress counts bytes.
Weights load_weights(const std::string &directory, const Config &config, const Memory &memory,
                     Threads &threads, const Watch &watch, ModelIdentity &identity);

} // namespace stasis
