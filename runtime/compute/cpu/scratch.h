// The CPU's scratch: buffers for a number of rows. Part of a Pass. Knows nothing of devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/compute/cpu/attention_plan.h"
#include "runtime/compute/cpu/expert_scratch.h"
#include "runtime/compute/cpu/packed_rows.h"
#include "runtime/host/memory.h"
#include "runtime/kernels/table.h"

namespace stasis {

struct Network;

// The outputs of a matrix product that one thread computes at a time, at most: a multiple of the
// outputs that the tables compute side by side.
inline constexpr size_t kProductOutputs = 256;

struct CpuScratch {
    explicit CpuScratch(const Network &network);

    // Reserves memory for `rows` positions. Throws Error(no_memory).
    void fit(size_t rows);
    // Reserves memory for partial results of attention, `query_rows` times `blocks`, and for packed
    // queries. Reserves memory for weights only if the pass tracks attention. Throws
    // Error(no_memory).
    void fit_partials(size_t query_rows, size_t blocks, size_t head_dim, size_t query_bytes);
    uint64_t size_bytes() const {
        return storage.size_bytes() + partial_storage.size_bytes() + kept_storage.size_bytes() +
               experts.size_bytes();
    }

    // Return the workspace of `thread` while it computes an item.
    void *scratch_of(size_t thread) const { return scratch + thread * kernels::kScratchBytes; }
    float *gate_of(size_t thread) const { return gate + thread * rows * kProductOutputs; }
    float *up_of(size_t thread) const { return up + thread * rows * kProductOutputs; }

    const Network &network;
    size_t rows = 0;
    float *stream = nullptr; // [rows][hidden] residual stream
    float *wide = nullptr;   // [rows][max(hidden, layer_inputs)] results before they are added
    // [rows][max(hidden, heads*head_dim, intermediate, value_size, layer_inputs)] matmul inputs; of
    // an MTP head twice `hidden` at least
    uint16_t *narrow = nullptr;
    PackedRows packed; // `narrow`
    // [rows][heads][head_dim], or twice that where each head is followed by its output gate.
    float *query = nullptr;
    float *key = nullptr;           // [rows][kv_heads*head_dim]
    float *value = nullptr;         // [rows][kv_heads*head_dim]
    uint16_t *query_bf16 = nullptr; // [kv_heads][rows][heads / kv_heads][head_dim]
    float *gate = nullptr;          // [threads][rows][kProductOutputs]
    float *up = nullptr;            // [threads][rows][kProductOutputs]
    float *cosine = nullptr;        // [ropes][rows][most_rotary / 2]
    float *sine = nullptr;          // [ropes][rows][most_rotary / 2]
    float *inputs = nullptr;        // [rows][layers][layer_inputs] of the rows' tokens
    float *token_inputs = nullptr;  // [threads][layers][layer_inputs]
    // Of recurrent layers. The rows of each head of `convolved` follow each other. `mixed` has the
    // products that the convolution reads, and then, like `convolved`, what the delta rule gives.
    float *mixed = nullptr;     // [rows][channels]
    float *convolved = nullptr; // [head][rows][key_dim or value_dim] queries, keys, values
    float *gate_z = nullptr;    // [rows][product_size] z, or B, C and x, or z, x, B, C and dt
    float *decay = nullptr;     // [rows][value_heads] the products a, and then the decays
    float *beta = nullptr;      // [rows][value_heads] the products b or dt, then beta or the step
    uint8_t *scratch = nullptr; // [threads][kScratchBytes]
    std::vector<uint8_t> bad;   // [row] 1: a result was not finite
    // [recurrent layer][rows of the pass] of the convolution's inputs, a and b, if it keeps them.
    float *kept = nullptr;

    AttentionPlan attention;
    float *partial_max = nullptr; // [query row][block]
    float *partial_sum = nullptr;
    float *partial_output = nullptr; // [query row][block][head_dim]
    uint64_t *visible = nullptr;     // [query row][block]
    // [query row][block][kPagePositions]; null: no sequence of the pass is tracked.
    uint16_t *partial_weights = nullptr;
    uint8_t *packed_query = nullptr; // by item of the attention

    ExpertScratch experts;

    Buffer storage, partial_storage, kept_storage;
};

} // namespace stasis
