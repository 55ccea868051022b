// The CPU's scratch for mixtures of experts. Part of CpuScratch; takes no memory for models without
// experts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/compute/cpu/packed_rows.h"
#include "runtime/host/memory.h"

namespace stasis {

struct Network;

// The rows of a pass whose experts are computed together, at most. It bounds the memory for their
// inputs and results, of which each row has as many as it chooses experts.
inline constexpr size_t kExpertRows = 512;

// The rows of a slice that chose the same expert.
struct ExpertGroup {
    uint32_t expert;
    size_t begin, rows; // among the assignments
    PackedRows packed;  // its input, then its inner values
    size_t first_item;  // of the product that is computed
};

// A slice has R rows, at most kExpertRows. Each has one assignment for each expert that it chose, A
// = R * chosen in all; they are grouped by expert.
struct ExpertScratch {
    explicit ExpertScratch(const Network &network);

    // Reserves memory for passes of `rows` rows. Throws Error(no_memory).
    void fit(size_t rows);
    // Reserves memory for packed rows. What was packed is lost. Throws Error(no_memory).
    uint8_t *fit_packed(size_t size_bytes);
    uint64_t size_bytes() const { return storage.size_bytes() + packed_storage.size_bytes(); }

    const Network &network;
    // Of all rows T of the pass.
    float *logits = nullptr;          // [T][count] of the router
    float *shared_gate = nullptr;     // [T], then its sigmoid
    uint16_t *shared_inner = nullptr; // [T][shared]
    float *shared_output = nullptr;   // [T][hidden]
    float *mlp_output = nullptr;      // [T][hidden] of the MLP beside the experts
    // Of the rows of a slice.
    uint32_t *chosen = nullptr; // [R][chosen] experts, ascending
    float *share = nullptr;     // [R][chosen]
    uint32_t *place = nullptr;  // [R][chosen] index of the assignment
    // Of the assignments.
    uint32_t *row = nullptr;   // [A] in the slice
    uint16_t *input = nullptr; // [A][hidden]
    uint16_t *inner = nullptr; // [A][intermediate]
    float *output = nullptr;   // [A][hidden]

    std::vector<ExpertGroup> groups; // ascending by expert
    std::vector<size_t> counts;      // [count] assignments of each expert

    Buffer storage, packed_storage;
};

} // namespace stasis
