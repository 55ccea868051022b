// The buffers of one forward pass, sized for a number of rows (positions) and reused from call to
// call. One caller at a time; the model keeps a free list of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/checkpoint/config.h"
#include "runtime/kernels/table.h"
#include "runtime/memory.h"
#include "runtime/sampling.h"

namespace stasis {

// Outputs of a matrix product that one thread computes at a time, at most: a multiple of what the
// tables compute side by side.
inline constexpr size_t kProductOutputs = 256;

struct Workspace {
    // `count`: threads that take part in a run.
    Workspace(const Memory &memory, const kernels::Table &kernels, size_t count)
        : table(kernels), threads(count), storage(memory), partial_storage(memory) {}

    // Makes room for `rows` positions. Throws Error(no_memory).
    void fit(const Config &config, size_t rows);
    // Makes room for partial results of attention, `rows` query rows times `blocks`, and for packed
    // queries.
    void fit_partials(size_t rows, size_t blocks, size_t head_dim, size_t query_bytes);
    uint64_t size_bytes() const { return storage.size_bytes() + partial_storage.size_bytes(); }

    // What `thread` may use while it computes an item.
    void *scratch_of(size_t thread) const { return scratch + thread * kernels::kScratchBytes; }
    float *gate_of(size_t thread) const { return gate + thread * rows * kProductOutputs; }
    float *up_of(size_t thread) const { return up + thread * rows * kProductOutputs; }

    const kernels::Table &table;
    const size_t threads;
    size_t rows = 0;
    float *stream = nullptr;    // [rows][hidden] residual stream
    float *wide = nullptr;      // [rows][hidden] results on their way into the stream
    uint16_t *narrow = nullptr; // [rows][max(hidden, heads*head_dim, intermediate)] matmul inputs
    void *packed = nullptr;     // `narrow` in the table's order
    float *query = nullptr;     // [rows][heads*head_dim]
    float *key = nullptr;       // [rows][kv_heads*head_dim]
    float *value = nullptr;     // [rows][kv_heads*head_dim]
    uint16_t *query_bf16 = nullptr; // [kv_heads][rows][heads / kv_heads][head_dim]
    float *gate = nullptr;          // [threads][rows][kProductOutputs]
    float *up = nullptr;            // [threads][rows][kProductOutputs]
    float *cosine = nullptr;        // [ropes][rows][head_dim / 2]
    float *sine = nullptr;          // [ropes][rows][head_dim / 2]
    uint16_t *hidden = nullptr;     // [rows][hidden] final normalised hidden state
    float *logits = nullptr;        // [vocabulary]
    uint8_t *scratch = nullptr;     // [threads][kScratchBytes]

    float *partial_max = nullptr; // [query row][block]
    float *partial_sum = nullptr;
    float *partial_output = nullptr; // [query row][block][head_dim]
    uint64_t *visible = nullptr;     // [query row][block]
    uint8_t *packed_query = nullptr; // by item of the attention

    std::vector<std::vector<uint16_t *>> pages; // [group][page index - first_page]
    std::vector<size_t> first_page;             // [group]
    std::vector<uint32_t> tokens;               // of the chunk, or penalties' history
    SamplingScratch sampling;

    Buffer storage, partial_storage;
};

} // namespace stasis
