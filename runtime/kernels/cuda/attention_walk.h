// The way of attention_tiles.cu through the pages of a sequence, chunk by chunk. Knows no grid.
#pragma once

#include "runtime/kernels/cuda/attention.h"

namespace stasis::kernels::device {

inline constexpr unsigned kColumns = 64; // columns of the output computed together

// What the queries of a block of threads see.
struct Seen {
    Pages pages;        // of the sequence
    uint64_t low, high; // the positions that any query sees
};

// The pages of a sequence, one after the other, each with its chunks: first its keys, then its
// values, of which those are left out whose slots nobody sees. Loads what it needs of the next page
// ahead.
struct Walk {
    const Seen &all; // in shared memory
    const unsigned key_chunks, chunks;

    uint64_t block = 0;
    const uint16_t *page = nullptr, *next_page = nullptr;
    uint64_t held = 0, seen = 0,
             next_held = 0; // slots that are not evicted; those that any query sees
    unsigned chunk = 0;
    bool ended = false; // kept: each chunk asks, and `all` is in shared memory

    __device__ void begin() {
        block = all.low / kSlots - 1;
        load_next();
        go_to_page();
    }
    __device__ bool at_keys() const { return chunk < key_chunks; }
    __device__ unsigned term() const { return chunk * kTerms; }
    __device__ unsigned column() const { return (chunk - key_chunks) / 2 * kColumns; }
    __device__ unsigned slot() const { return (chunk - key_chunks) % 2 * kTerms; }
    __device__ bool sees_low() const { return static_cast<uint32_t>(seen) != 0; }
    __device__ bool sees_high() const { return seen >> kTerms != 0; }
    // Whether the chunk is the first or the last of those that are added: all keys, or the values
    // of a column.
    __device__ bool is_first() const { return at_keys() ? chunk == 0 : slot() == 0 || !sees_low(); }
    __device__ bool is_last() const {
        return at_keys() ? chunk + 1 == key_chunks : slot() != 0 || !sees_high();
    }

    __device__ void advance() {
        ++chunk;
        if (!at_keys() && chunk < chunks && !(slot() == 0 ? sees_low() : sees_high())) {
            ++chunk;
        }
        if (chunk == chunks) {
            chunk = 0;
            go_to_page();
        }
    }

  private:
    __device__ void load_next() {
        if (block + 1 <= all.high / kSlots) {
            next_page = all.pages.page(block + 1), next_held = all.pages.held(block + 1);
        }
    }
    __device__ void go_to_page() {
        do {
            ++block;
            page = next_page, held = next_held;
            seen = slots_of(all.low, all.high, block) & held;
            load_next();
            ended = block > all.high / kSlots;
        } while (!ended && (seen == 0 || page == nullptr)); // evicted whole
    }
};

} // namespace stasis::kernels::device
