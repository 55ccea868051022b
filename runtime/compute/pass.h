// One forward pass: the positions that it computes, and its results in host memory. A backend's own
// buffers are in its scratch (cpu/scratch.h, device/scratch.h). Sized for a number of rows and
// reused from call to call; one caller at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/host/memory.h"
#include "runtime/kv/page_pool.h"
#include "runtime/sampling/sampling.h"

namespace stasis {

struct CpuScratch;
struct DeviceScratch;
struct Network;

// Positions of one timeline among the rows of a pass, and the pages that they see.
struct Sequence {
    struct Pages { // of one group, from page `first` on
        size_t first = 0;
        std::vector<uint16_t *> data;
    };

    uint64_t begin = 0; // position of the first row
    size_t row = 0;     // first row in the pass
    size_t rows = 0;
    std::vector<Pages> pages; // [group]; null page: evicted whole
    // [block] slots that it does not see; blocks past the end have none.
    std::span<const uint64_t> evicted;
    bool long_rope = false; // RoPE has its long factors (Timeline::long_rope)
    // Of a model with recurrent layers: their states before the first row (null: at the beginning
    // of the log, all zero), [recurrent layer][Recurrent::state_size]; and where those after some
    // of the rows go, ascending, the last after all rows.
    struct StateAfter {
        size_t rows;
        float *numbers;
    };
    const float *state = nullptr;
    std::vector<StateAfter> next_states;
    // The layer of the first value that is not finite: a layer's keys and values, or, as the layer
    // after the last, the final hidden state. The other results of this sequence are then
    // undefined; those of other sequences are valid.
    bool failed = false;
    size_t failed_layer = 0;
    uint64_t failed_position = 0;
    // The sums to which its rows' attention is added (timeline/attention_sums.h), for every page
    // that they see: [page][sum_rows][kPagePositions]; null: not tracked.
    uint64_t *sums = nullptr;
    size_t sum_rows = 0;

    // Records a value that is not finite; the first layer counts, and in it the first row.
    void fail_at(size_t layer, uint64_t position) {
        if (!failed || layer < failed_layer) {
            failed = true;
            failed_layer = layer;
            failed_position = position;
        }
    }
    // Returns the page of `group` that holds a position.
    uint16_t *page(uint32_t group, uint64_t position) const {
        return pages[group].data[position / kPage - pages[group].first];
    }
};

struct Pass {
    explicit Pass(const Network &network);
    ~Pass();
    Pass(const Pass &) = delete;
    Pass &operator=(const Pass &) = delete;

    // Reserves memory for `rows` positions. Throws Error(no_memory).
    void fit(size_t rows);
    // Reserves memory for `rows` rows of logits. Throws Error(no_memory).
    void fit_logits(size_t rows);

    // Begins a pass without sequences; memory of earlier ones is reused.
    void clear();
    // Removes the sequences from `first` on, and their tokens.
    void drop_sequences(size_t first);
    // Adds a sequence of `sequence_rows` rows. The caller then adds its pages and tokens.
    Sequence &add_sequence(uint64_t begin, size_t sequence_rows, size_t groups);

    std::span<Sequence> all() { return {sequences.data(), sequence_count}; }
    std::span<const Sequence> all() const { return {sequences.data(), sequence_count}; }
    Sequence &sequence_of(size_t row) { return sequences[of_row[row]]; }
    // Returns the position that a row computes.
    uint64_t position_of(size_t row) const {
        const Sequence &sequence = sequences[of_row[row]];
        return sequence.begin + (row - sequence.row);
    }
    bool all_failed() const;
    uint64_t size_bytes() const;

    const Network &network;
    size_t rows = 0;             // rows reserved
    uint16_t *hidden = nullptr;  // [rows][hidden] final normalised hidden state
    float *logits = nullptr;     // [vocabulary]
    float *logit_rows = nullptr; // [rows of fit_logits][vocabulary]
    // Of an MTP head: [rows][hidden], the final hidden state before each row's token.
    const uint16_t *previous = nullptr;
    std::vector<uint32_t> tokens; // of the rows, or penalties' history
    SamplingScratch sampling;

    std::vector<Sequence> sequences; // the first `sequence_count` are the pass's
    size_t sequence_count = 0, row_count = 0;
    // Number of rows of each product with weights under the device profile; results of the rows
    // after the pass's own are ignored. 0: the contract applies.
    size_t padded = 0;
    bool keeps_inputs = false;    // of recurrent layers, for recur_again
    std::vector<uint32_t> of_row; // [row] its sequence

    Buffer storage, logit_storage;
    std::unique_ptr<CpuScratch> cpu;       // null: a device computes
    std::unique_ptr<DeviceScratch> device; // null: the CPU computes
};

// Holds a pass during one call; idle passes are reused.
class PassLease {
  public:
    explicit PassLease(const Network &network);
    ~PassLease();
    PassLease(const PassLease &) = delete;
    PassLease &operator=(const PassLease &) = delete;
    Pass &operator*() const { return *pass_; }
    Pass *operator->() const { return pass_.get(); }

  private:
    const Network &network_;
    std::unique_ptr<Pass> pass_;
};

} // namespace stasis
