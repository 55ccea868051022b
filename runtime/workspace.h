// The buffers of one forward pass, sized for a number of rows (positions) and reused from call to
// call. One caller at a time; the model keeps a free list of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/checkpoint/config.h"
#include "runtime/memory.h"
#include "runtime/sampling.h"

namespace stasis {

struct Workspace {
    explicit Workspace(const Memory &memory) : storage(memory), partial_storage(memory) {}

    // Makes room for `rows` positions. Throws Error(no_memory).
    void fit(const Config &config, size_t rows);
    // Makes room for partial results of attention: `rows` query rows times `blocks`.
    void fit_partials(size_t rows, size_t blocks, size_t head_dim);
    uint64_t size_bytes() const { return storage.size_bytes() + partial_storage.size_bytes(); }

    size_t rows = 0;
    float *stream = nullptr;    // [rows][hidden] residual stream
    float *wide = nullptr;      // [rows][hidden] results on their way into the stream
    uint16_t *narrow = nullptr; // [rows][max(hidden, heads*head_dim, intermediate)] matmul inputs
    float *query = nullptr;     // [rows][heads*head_dim]
    float *key = nullptr;       // [rows][kv_heads*head_dim]
    float *value = nullptr;     // [rows][kv_heads*head_dim]
    uint16_t *query_bf16 = nullptr; // [kv_heads][rows][heads / kv_heads][head_dim]
    float *gate = nullptr;          // [rows][intermediate]
    float *up = nullptr;            // [rows][intermediate]
    float *cosine = nullptr;        // [ropes][rows][head_dim / 2]
    float *sine = nullptr;          // [ropes][rows][head_dim / 2]
    uint16_t *hidden = nullptr;     // [rows][hidden] final normalised hidden state
    float *logits = nullptr;        // [vocabulary]

    float *partial_max = nullptr; // [query row][block]
    float *partial_sum = nullptr;
    float *partial_output = nullptr; // [query row][block][head_dim]
    uint64_t *visible = nullptr;     // [query row][block]

    std::vector<std::vector<uint16_t *>> pages; // [group][page index - first_page]
    std::vector<size_t> first_page;             // [group]
    std::vector<uint32_t> tokens;               // of the chunk, or penalties' history
    SamplingScratch sampling;

    Buffer storage, partial_storage;
};

} // namespace stasis
