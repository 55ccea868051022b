// One forward pass: whose positions it computes, and its results, which lie on the host. What a
// backend computes with is its own (cpu/scratch.h, device/scratch.h). Sized for a number of rows
// and used again from call to call; one caller at a time.
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

    uint64_t begin = 0; // position of its first row
    size_t row = 0;     // of the pass
    size_t rows = 0;
    std::vector<Pages> pages;          // [group]; null: evicted whole
    std::span<const uint64_t> evicted; // [block] slots that it does not see; none beyond
    // Where it first met what is not finite: a layer's keys and values, or, in the layer after the
    // last, the final hidden state. Its other results then mean nothing; those of others stand.
    bool failed = false;
    size_t failed_layer = 0;
    uint64_t failed_position = 0;
    // Where to add the attention that its rows give (timeline/attention_sums.h), for every page
    // that they see: [page][sum_rows][kPagePositions]; null: it is not tracked.
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
        return pages[group].data[position / kPage - pages[group].first];
    }
};

struct Pass {
    explicit Pass(const Network &network);
    ~Pass();
    Pass(const Pass &) = delete;
    Pass &operator=(const Pass &) = delete;

    // Makes room for `rows` positions. Throws Error(no_memory).
    void fit(size_t rows);
    // Makes room for rows of logits. Throws Error(no_memory).
    void fit_logits(size_t rows);

    // Begins a pass without sequences; the memory of earlier ones is used again.
    void clear();
    // Removes the sequences from `first` on, and their tokens.
    void drop_sequences(size_t first);
    // Adds a sequence of so many rows, whose pages and tokens the caller then adds.
    Sequence &add_sequence(uint64_t begin, size_t sequence_rows, size_t groups);

    std::span<Sequence> all() { return {sequences.data(), sequence_count}; }
    std::span<const Sequence> all() const { return {sequences.data(), sequence_count}; }
    Sequence &sequence_of(size_t row) { return sequences[of_row[row]]; }
    // The position that a row computes.
    uint64_t position_of(size_t row) const {
        const Sequence &sequence = sequences[of_row[row]];
        return sequence.begin + (row - sequence.row);
    }
    bool all_failed() const;
    uint64_t size_bytes() const;

    const Network &network;
    size_t rows = 0;              // that there is room for
    uint16_t *hidden = nullptr;   // [rows][hidden] final normalised hidden state
    float *logits = nullptr;      // [vocabulary]
    float *logit_rows = nullptr;  // [rows of fit_logits][vocabulary]
    std::vector<uint32_t> tokens; // of the rows, or penalties' history
    SamplingScratch sampling;

    std::vector<Sequence> sequences; // the first `sequence_count` are the pass's
    size_t sequence_count = 0, row_count = 0;
    // Rows that products with weights are computed with under the device profile, those after the
    // pass's own being of no account; 0: by the contract.
    size_t padded = 0;
    std::vector<uint32_t> of_row; // [row] its sequence

    Buffer storage, logit_storage;
    std::unique_ptr<CpuScratch> cpu;       // null: a device computes
    std::unique_ptr<DeviceScratch> device; // null: the CPU does
};

// A pass for the length of one call; idle ones are used again.
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
