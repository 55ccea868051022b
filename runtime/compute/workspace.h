// The buffers of one forward pass, sized for a number of rows (positions) and reused from call to
// call. Where the model computes on a device, most of them are there (device/work.h). One caller at
// a time; the model keeps a free list of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/compute/attention_plan.h"
#include "runtime/host/memory.h"
#include "runtime/kernels/table.h"
#include "runtime/model/config.h"
#include "runtime/model/weights.h"
#include "runtime/sampling/sampling.h"

namespace stasis {

// Outputs of a matrix product that one thread computes at a time, at most: a multiple of what the
// tables compute side by side.
inline constexpr size_t kProductOutputs = 256;

class DeviceModel;
struct DeviceWork;

// Positions of one session among the rows of a pass, and what they see.
struct Sequence {
    struct Pages { // of one group, from page `first` on
        size_t first = 0;
        std::vector<uint16_t *> data;
    };

    uint64_t begin = 0; // position of its first row
    size_t row = 0;     // of the pass
    size_t rows = 0;
    std::vector<Pages> pages;          // [group]; null: evicted whole
    std::span<const uint64_t> evicted; // [block] slots that it does not see; none beyond
    // Where it first met what is not finite: a layer's keys and values, or, in the layer behind the
    // last, the final hidden state. Its other results then mean nothing; those of others stand.
    bool failed = false;
    size_t failed_layer = 0;
    uint64_t failed_position = 0;
    // Where to add the attention that its rows give (attention_sums.h), for every page that they
    // see: [page][sum_rows][kPagePositions]; null: it is not tracked.
    uint64_t *sums = nullptr;
    size_t sum_rows = 0;

    // Records that a row met what is not finite; the first layer counts, and in it the first row.
    void fail_at(size_t layer, uint64_t position) {
        if (!failed || layer < failed_layer) {
            failed = true;
            failed_layer = layer;
            failed_position = position;
        }
    }
    // The page of `group` that holds a position.
    uint16_t *page(uint32_t group, uint64_t position) const {
        return pages[group].data[position / kernels::kPagePositions - pages[group].first];
    }
};

struct Workspace {
    // `count`: threads that take part in a run; `model`: on a device, or null.
    Workspace(const Memory &memory, const kernels::Table &kernels, size_t count,
              DeviceModel *model);
    ~Workspace();

    // Makes room for `rows` positions. Throws Error(no_memory).
    void fit(const Config &config, const QuantGroups &groups, size_t rows);
    // Makes room for partial results of attention, `rows` query rows times `blocks`, and for packed
    // queries; for weights only where the pass is tracked.
    void fit_partials(size_t rows, size_t blocks, size_t head_dim, size_t query_bytes);

    // Makes room for so many logits.
    void fit_logits(size_t count);

    // A pass is made of sequences, whose rows follow each other. The memory of earlier passes'
    // sequences is used again.
    void clear_sequences() { sequence_count = 0, row_count = 0, padded = 0; }
    // Those from `first` on, and their tokens.
    void drop_sequences(size_t first);
    // The next one, of so many rows, its pages to be named.
    Sequence &add_sequence(uint64_t begin, size_t sequence_rows, size_t groups);
    std::span<Sequence> pass() { return {sequences.data(), sequence_count}; }
    Sequence &sequence_of(size_t row) { return sequences[of_row[row]]; }
    // The position that a row computes.
    uint64_t position_of(size_t row) const {
        const Sequence &sequence = sequences[of_row[row]];
        return sequence.begin + (row - sequence.row);
    }
    uint64_t size_bytes() const;

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
    // The same quantized, by groups of 32 and of 256 (C8); null: no matrix is in such blocks.
    void *quantized[2] = {nullptr, nullptr};
    float *query = nullptr;         // [rows][heads*head_dim]
    float *key = nullptr;           // [rows][kv_heads*head_dim]
    float *value = nullptr;         // [rows][kv_heads*head_dim]
    uint16_t *query_bf16 = nullptr; // [kv_heads][rows][heads / kv_heads][head_dim]
    float *gate = nullptr;          // [threads][rows][kProductOutputs]
    float *up = nullptr;            // [threads][rows][kProductOutputs]
    float *cosine = nullptr;        // [ropes][rows][head_dim / 2]
    float *sine = nullptr;          // [ropes][rows][head_dim / 2]
    uint16_t *hidden = nullptr;     // [rows][hidden] final normalised hidden state
    float *logits = nullptr;        // [vocabulary]
    float *logit_rows = nullptr;    // as many as fit_logits was asked for
    uint8_t *scratch = nullptr;     // [threads][kScratchBytes]

    float *partial_max = nullptr; // [query row][block]
    float *partial_sum = nullptr;
    float *partial_output = nullptr; // [query row][block][head_dim]
    uint64_t *visible = nullptr;     // [query row][block]
    // [query row][block][kPagePositions]; null: no sequence of the pass is tracked.
    uint16_t *partial_weights = nullptr;
    uint8_t *packed_query = nullptr; // by item of the attention

    std::vector<Sequence> sequences; // the first `sequence_count` are the pass's
    size_t sequence_count = 0, row_count = 0;
    // Rows that products with weights are computed with, under the device profile, those behind the
    // pass's own being of no account; 0: by the contract.
    size_t padded = 0;
    AttentionPlan attention;
    std::vector<uint32_t> of_row; // [row] its sequence
    std::vector<uint8_t> bad;     // [row] whether a layer gave it what is not finite
    std::vector<uint32_t> tokens; // of the pass, or penalties' history
    SamplingScratch sampling;

    Buffer storage, partial_storage, logit_storage;
    std::unique_ptr<DeviceWork> device; // null: the CPU

  private:
    void fit_results(const Config &config, size_t wanted);
};

} // namespace stasis
