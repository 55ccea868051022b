// The weights of one model as the forward pass wants them, and their digests. Immutable after
// loading. All files are read by calls; bf16 matrices then point into a mapping, if they may; f16
// and f32 ones are rounded to bf16 once (C6), those of integers put into strips (C8). Norm weights
// and biases are small and kept as f32.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "format/state/digest.h"
#include "format/state/state.h"
#include "format/state/watch.h"
#include "runtime/host/memory.h"
#include "runtime/kernels/strips.h"
#include "runtime/model/config.h"
#include "runtime/model/safetensors.h"

namespace stasis {

class Threads;

// Either bf16 values or integers (C8); neither of integers whose rows are only looked up.
struct Matrix {
    const uint16_t *data = nullptr;              // [rows][columns] bf16, row-major
    const uint8_t *strips = nullptr;             // as in runtime/kernels/strips.h
    kernels::Quant quant = kernels::Quant::q8_0; // of the integers
    size_t rows = 0;                             // outputs
    size_t columns = 0;                          // inputs
    const float *bias = nullptr;                 // [rows] f32, null: none
};

// Groups by which the rows that a model's matrices multiply are to be quantized (C8).
struct QuantGroups {
    bool by_32 = false, by_256 = false;

    void add(const Matrix &matrix) {
        if (matrix.strips != nullptr) {
            (kernels::quant_block(matrix.quant).elements == 32 ? by_32 : by_256) = true;
        }
    }
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
    Matrix embeddings;                         // [vocabulary][hidden] bf16; also the tied head
    const float *wide_embeddings = nullptr;    // the same as stored, where that is wider than bf16:
                                               // looking up a row is no matrix product (C6)
    const uint8_t *embedding_blocks = nullptr; // rows of blocks as stored, where they are integers
    Matrix head;                               // [vocabulary][hidden]; the embeddings where tied
    const float *final_norm = nullptr;         // [hidden]
    std::vector<LayerWeights> layers;

    QuantGroups groups; // of all matrices
    std::string types;  // as stored: "Q4_K: 180 matrices, Q6_K: 31 matrices, F32: 61 vectors"
    uint64_t stored_bytes = 0;
    bool converted = false; // some matrix was stored in another type and rounded to bf16
    std::vector<std::shared_ptr<ModelFile>> mapped; // the files that something above points into
    std::vector<std::unique_ptr<Buffer>> storage;   // of matrices that are not mapped
    std::vector<std::vector<float>> float_storage;

    // Throws Error(io) if a mapped file was written to or cut short since it was opened.
    void check_unchanged() const;
};

// Where matrices go: those that are not mapped into `memory`.
struct WeightsPlace {
    const Memory &memory;
    bool map = true; // what can be computed with as it is stored
};

// Finds and checks every tensor that `config` calls for (name, dtype, shape), refuses tensors it
// does not know by name (buffers that published checkpoints carry, like rotary inv_freq, and a
// vision tower beside a text model excepted), refuses non-finite values naming tensor and index,
// and fills the digests of `identity` (embeddings, norms, attention, mlp, head, model) from the
// values as stored in the file. Work is split over `threads`. Progress counts bytes. Throws
// Error(io) where a file was written to or cut short meanwhile.
Weights load_weights(Checkpoint checkpoint, const Config &config, const WeightsPlace &place,
                     Threads &threads, const Watch &watch, ModelIdentity &identity);

} // namespace stasis
