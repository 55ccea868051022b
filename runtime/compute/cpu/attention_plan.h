// How the rows of a pass are cut for attention: which pages the sequences of few rows read, a page
// that several share once for all of them, and the tiles of the others. Made once a pass and group;
// knows no kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/kernels/visibility.h"
#include "runtime/kv/page_pool.h"

namespace stasis {

struct Network;
struct Pass;

using kernels::first_visible;

// Of sequences of few rows. Partial results are counted by rows of the pass and blocks, for one KV
// head: [read][row of its readers].
struct BlockPlan {
    struct Readers {          // sequences that read some pages together
        size_t member, count; // members[member] ...
        size_t rows;          // of all of them
        size_t query_at;      // bytes, of their packed queries
    };
    struct Read {
        uint64_t block;
        const uint16_t *page;
        size_t readers;
        size_t partial; // of the readers' first row
    };
    struct Row {
        size_t row;           // of the pass
        size_t of_sequence;   // rows of its sequence before it
        size_t first, blocks; // its sequence's in `partial_of`
    };
    std::vector<Readers> readers;
    std::vector<uint32_t> members; // sequences
    std::vector<Read> reads;       // ascending by block
    std::vector<Row> rows;
    static constexpr size_t kNone = SIZE_MAX;
    std::vector<size_t>
        partial_of; // [blocks of a sequence] partial of its first row; kNone: evicted
    size_t partials = 0;
    size_t query_bytes = 0; // of all readers' packed queries

    void clear();

    struct Entry { // while it is made
        uint64_t block;
        const uint16_t *page;
        uint32_t sequence;
        size_t place; // in partial_of
    };
    std::vector<Entry> entries;
    std::vector<size_t> latest; // [sequence] readers that it was the first of
};

// Rows of a sequence of many.
struct RowTile {
    uint32_t sequence;
    size_t row, count; // of the sequence
};

// How the sequences of many rows are cut for the layers of a group.
struct TilePlan {
    std::vector<RowTile> tiles;
    size_t rows = 0; // at most in each
};

struct AttentionPlan {
    std::vector<BlockPlan> groups; // [group]
    std::vector<TilePlan> tiles;   // [group]
    bool few = false;              // whether some sequence has few rows
    bool tracked = false;          // whether the attention of some sequence is added up
};

// Makes the plan of the pass's sequences, whose pages are named, in its scratch.
void plan_attention(Pass &pass);

// Bytes of the packed queries of so many rows that share a KV head of such pages, a multiple of 64.
size_t packed_query_bytes(const Network &network, const PageShape &shape, size_t rows);

} // namespace stasis
