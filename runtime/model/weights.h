// The weights of one model in the forms that the forward pass reads, and their digests. Immutable
// after loading. All files are read by calls. Matrices of bf16 then point into a mapping, if
// mapping is allowed, or are coded; matrices of f16 and f32 are rounded to bf16 once (C6), and
// those of integers are reordered into strips (C8). Norm weights and biases are small and stored as
// f32.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "format/state/digest.h"
#include "format/state/state.h"
#include "format/state/watch.h"
#include "runtime/host/memory.h"
#include "runtime/kernels/table.h"
#include "runtime/model/config.h"
#include "runtime/model/safetensors.h"

namespace stasis {

class Threads;

// A matrix has bf16 values or integers (C8). It has neither if it is of integers whose rows are
// only looked up. Where bf16 values are coded, products read them so; `data` is then that of rows
// which are looked up as well, or null.
struct Matrix {
    const uint16_t *data = nullptr;              // [rows][columns] bf16, row-major
    const kernels::CodedStrip *coded = nullptr;  // of 16 outputs each
    const uint8_t *strips = nullptr;             // as in runtime/kernels/strips.h
    kernels::Quant quant = kernels::Quant::q8_0; // of the integers
    size_t rows = 0;                             // outputs
    size_t columns = 0;                          // inputs
    const float *bias = nullptr;                 // [rows] f32, null: none
};

// The group sizes in which rows must be quantized for a model's matrices (C8).
struct QuantGroups {
    bool by_32 = false, by_256 = false;

    void add(const Matrix &matrix) {
        if (matrix.strips != nullptr) {
            (kernels::quant_block(matrix.quant).elements == 32 ? by_32 : by_256) = true;
        }
    }
};

struct Mlp {
    Matrix gate, up, down; // [intermediate][hidden] twice, [hidden][intermediate]
};

// The weights of a mixture of experts.
struct ExpertWeights {
    Matrix router;         // [count][hidden]
    std::vector<Mlp> each; // [count]
    // Beside an MLP (Experts::beside_mlp).
    const float *router_scale = nullptr;  // [hidden], of the router's input
    const float *scales = nullptr;        // [count], of the experts' shares
    const float *post_mlp_norm = nullptr; // [hidden] after the one MLP
    const float *norm = nullptr;          // [hidden] before the experts
    const float *post_norm = nullptr;     // [hidden] after their sum
    Mlp shared;                           // without data if there is no shared expert
    Matrix shared_gate;                   // [1][hidden]
};

// The weights of a recurrent layer (Recurrent has the sizes).
struct RecurrentWeights {
    // [channels][hidden]: query, key, value; or of short convolutions and of Mamba-2, which have
    // neither of the next three, [product_size][hidden]: B, C, x; z, x, B, C, dt
    Matrix input;
    Matrix gate;                             // [value_size][hidden]: z
    Matrix decay;                            // [value_heads][hidden]: a
    Matrix beta;                             // [value_heads][hidden]: b
    Matrix output;                           // [hidden][value_size]
    const float *convolution = nullptr;      // [taps][channels]
    const float *convolution_bias = nullptr; // [channels], null: none
    const float *skip = nullptr;             // [value_heads] D of Mamba-2
    const float *rate = nullptr;             // [value_heads] -exp(A_log)
    const float *bias = nullptr;             // [value_heads] dt_bias
    const float *norm = nullptr;             // [value_dim], of Mamba-2 [value_size]
};

// What a layer adds of the numbers of its own that each token has (Config::layer_inputs): output *
// (activation(gate * x) * numbers).
struct LayerInputWeights {
    Matrix gate;                      // [layer_inputs][hidden]
    Matrix output;                    // [hidden][layer_inputs]
    const float *post_norm = nullptr; // [hidden] after it
};

// A layer has either attention or `recurrent`, and `mlp` or `experts` or both. It has neither key
// nor value if it uses another's, and no value if keys are its values.
struct LayerWeights {
    // [heads*head_dim][hidden], ..., [hidden][heads*head_dim]. With an output gate, `query` has
    // for each head its rows and then those of its gate.
    Matrix query, key, value, output;
    const float *sinks = nullptr; // [heads], null: none
    RecurrentWeights recurrent;
    Mlp mlp;
    ExpertWeights experts;
    // Each null: none (1 + w folded in).
    const float *attention_norm = nullptr;      // [hidden] before attention
    const float *post_attention_norm = nullptr; // [hidden]
    const float *mlp_norm = nullptr;            // [hidden] before the MLP
    const float *post_mlp_norm = nullptr;       // [hidden]
    const float *query_norm = nullptr;          // [head_dim], or of all heads (joint_norms)
    const float *key_norm = nullptr;            // the same
    LayerInputWeights inputs;
    const float *scalar = nullptr; // [1]: the stream is multiplied by it after the layer
};

// Rows that are only looked up, as they are stored: mapped where mapping is allowed.
struct Lookup {
    const uint8_t *rows = nullptr; // of any alignment
    DataType type = DataType::bf16;
    size_t row_bytes = 0;
};

// What each token gives to the layers (Config::layer_inputs).
struct LayerInputs {
    Matrix table;                // [vocabulary][layers * layer_inputs]: the sizes alone
    Lookup tokens;               // its rows
    Matrix projection;           // [layers * layer_inputs][hidden] of the embedding
    const float *norm = nullptr; // [layer_inputs] after it
};

// The head that predicts the token after the next (multi-token prediction, MTP): a layer with
// attention whose input is join * [norm(embedding of the next token), norm(final hidden state)],
// and a norm before the model's head. The embeddings and the head are the model's.
struct MtpWeights {
    Matrix join;                           // [hidden][2 * hidden]
    const float *embedding_norm = nullptr; // [hidden] (1 + w folded in)
    const float *hidden_norm = nullptr;    // [hidden]
    LayerWeights layer;                    // with attention
    const float *final_norm = nullptr;     // [hidden]

    QuantGroups groups; // of `join` and the layer
    uint64_t stored_bytes = 0;

    bool present() const { return final_norm != nullptr; }
};

struct Weights {
    Matrix embeddings; // [vocabulary][hidden] bf16; also the tied head
    // The embeddings as stored, if that is wider than bf16: looking up a row is no matrix product
    // (C6).
    const float *wide_embeddings = nullptr;
    const uint8_t *embedding_blocks = nullptr; // rows of blocks as stored, if they are integers
    Matrix head;                               // [vocabulary][hidden]; the embeddings if tied
    const float *final_norm = nullptr;         // [hidden]
    LayerInputs inputs;
    std::vector<LayerWeights> layers;
    MtpWeights mtp; // counts in none of the members below but `ignored`, `mapped` and storage

    QuantGroups groups;  // of all matrices
    std::string types;   // as stored: "Q4_K: 180 matrices, Q6_K: 31 matrices, F32: 61 vectors"
    std::string ignored; // tensors that no result depends on: "model.visual: 3, mtp: 1"
    uint64_t stored_bytes = 0;
    bool converted = false; // a matrix was stored in another type and rounded to bf16
    std::vector<std::shared_ptr<ModelFile>> mapped; // the files that members above point into
    std::vector<std::unique_ptr<Buffer>> storage;   // memory of matrices that are not mapped
    std::vector<std::vector<float>> float_storage;
    std::vector<std::vector<kernels::CodedStrip>> coded_strips; // of one matrix each, as the next
    std::vector<std::vector<kernels::Escape>> escapes;

    // Throws Error(io) if a mapped file was written to or cut short since it was opened.
    void check_unchanged() const;
};

// Where weights are, and which digests are known of them.
struct WeightsPlace {
    const Memory &memory; // of matrices that are not mapped
    bool map = true;      // map matrices that can be computed with as stored
    // Tensors of so many bytes together keep their digests in the user's cache directory
    // (known_digests.h).
    uint64_t known_from_bytes = UINT64_MAX;
    bool verify = false; // compute the digests in any case
    // Codes matrices of bf16 that products read; expects no mapping. Null: they are as stored.
    const kernels::Table *code = nullptr;
};

// What weights take of memory once they are loaded, in bytes.
struct WeightSizes {
    uint64_t parameters = 0;   // numbers in all tensors but those of the MTP head
    uint64_t mapped_bytes = 0; // of tensors that stay in mapped files
    uint64_t taken_bytes = 0;  // of Memory
    uint64_t heap_bytes = 0;   // of vectors
    uint64_t stored_bytes = 0, mtp_bytes = 0;
    std::string types;  // as Weights::types
    QuantGroups groups; // of all matrices
};

// Returns the same from the headers of the files alone; `map` and `code` as in WeightsPlace. Throws
// as load_weights, for what can be seen without reading values.
WeightSizes measure_weights(Checkpoint checkpoint, const Config &config, bool map, bool code);

// Returns the identity of a model's sessions with the short factors of long RoPE.
ModelIdentity short_rope_identity(const ModelIdentity &identity);

// Finds and checks every tensor that `config` needs (name, dtype, shape). Refuses unknown tensors
// by name, except buffers in published checkpoints, such as rotary inv_freq, and a vision tower
// beside a text model. Refuses non-finite values, naming tensor and index. Fills the digests of
// `identity` (embeddings, norms, attention, mlp, head, model) from the values as stored in the
// file. An MTP head is loaded and checked like the rest where the checkpoint has the head that
// `config` describes, and is in no digest. What an earlier process hashed, and thereby checked, is
// neither hashed nor checked again, and not read where it is mapped (WeightsPlace). Splits the work
// over `threads`. Progress counts bytes.
// Throws Error(io) if a file was written to or cut short meanwhile.
Weights load_weights(Checkpoint checkpoint, const Config &config, const WeightsPlace &place,
                     Threads &threads, const Watch &watch, ModelIdentity &identity);

} // namespace stasis
