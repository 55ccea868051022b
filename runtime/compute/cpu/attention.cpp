// Attention over pages by fixed blocks (C5): how the work of a pass is split over threads. A
// block's partial and the order of merging do not depend on the split, nor on which other sequences
// take part.
#include "runtime/compute/cpu/attention.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "runtime/compute/cpu/scratch.h"
#include "runtime/compute/network.h"
#include "runtime/kernels/received.h"

namespace stasis {

namespace {

// What the two ways of splitting share.
struct Attention {
    const Network &network;
    Pass &pass;
    CpuScratch &work;
    const PageShape &shape;
    LayerPlace place;
    size_t layer;
    uint32_t window;
    size_t group_heads; // query heads per KV head
    size_t head_dim;
    uint16_t *output;   // [T][heads * head_dim]
    const float *sinks; // [heads], null: none

    // The queries of a row, and of those behind it, that share a KV head.
    const uint16_t *query(size_t kv_head, size_t row) const {
        return work.query_bf16 + (kv_head * pass.row_count + row) * group_heads * head_dim;
    }
    void pack_query(const uint16_t *query, size_t rows, void *packed) const {
        const size_t query_rows = rows * group_heads;
        network.kernels->pack({query, head_dim, query_rows, head_dim, packed}, 0, query_rows);
    }

    // A KV head's part of a page.
    struct Place {
        const uint16_t *page;
        size_t kv_head;
    };
    const uint16_t *part(const Place &of, size_t value) const {
        return of.page + shape.offset(place.index, value, of.kv_head);
    }

    // One page for `rows` rows whose queries are packed and whose `visible` is set from index `at`
    // of the partial arrays on; results go there. `next`: what the same thread takes then, if any.
    void block_partial(const Place &here, const Place *next, size_t rows, const void *query,
                       size_t at, size_t thread) const {
        kernels::AttentionBlock task;
        task.query = query;
        task.visible = work.visible + at;
        task.keys = part(here, 0);
        task.values = part(here, 1);
        task.next_keys = next != nullptr ? part(*next, 0) : nullptr;
        task.next_values = next != nullptr ? part(*next, 1) : nullptr;
        task.rows = rows * group_heads;
        task.head_dim = head_dim;
        task.scale = network.config.attention_scale;
        task.softcap = network.config.attention_softcap;
        task.maximum = work.partial_max + at;
        task.sum = work.partial_sum + at;
        task.output = work.partial_output + at * head_dim;
        task.weights = work.partial_weights == nullptr ? nullptr : weights(at);
        task.scratch = work.scratch_of(thread);
        network.kernels->attention_block(task);
    }

    // Of the partial at an index, where the pass is tracked.
    uint16_t *weights(size_t at) const { return work.partial_weights + at * kPage; }

    // Adds to a sequence's sums what a block received from a query head of this layer (C10).
    // Several threads may add to the same: the sums do not depend on the order.
    void add_to_sums(const Sequence &sequence, uint64_t block, size_t head,
                     const uint64_t (&received)[kPage]) const {
        const size_t row = sequence.sum_rows == 1 ? 0 : layer * network.config.heads + head;
        uint64_t *sums = sequence.sums + (block * sequence.sum_rows + row) * kPage;
        for (size_t slot = 0; slot < kPage; ++slot) {
            if (received[slot] != 0) {
                std::atomic_ref(sums[slot]).fetch_add(received[slot], std::memory_order_relaxed);
            }
        }
    }

    // The last position that a sequence's row sees.
    uint64_t last_visible(const Sequence &sequence, size_t row) const {
        const uint64_t position = sequence.begin + row;
        return network.config.bidirectional
                   ? kernels::last_visible_both_ways(position, window, sequence.rows)
                   : position;
    }

    // What a sequence's row sees of a block, for each of its queries.
    void set_visible(size_t at, const Sequence &sequence, size_t row, uint64_t block) const {
        const uint64_t first = first_visible(sequence.begin + row, window);
        std::fill_n(
            work.visible + at, group_heads,
            kernels::slots_of(first, last_visible(sequence, row), block) &
                kernels::held_slots(sequence.evicted.data(), sequence.evicted.size(), block));
    }

    // Merges the partials of `rows` queries from index `from` on into the running results from
    // index `into` on.
    void merge(size_t into, size_t from, size_t rows) const {
        network.kernels->attention_merge(
            {rows, head_dim, work.visible + from, work.partial_max + into, work.partial_sum + into,
             work.partial_output + into * head_dim, work.partial_max + from,
             work.partial_sum + from, work.partial_output + from * head_dim});
    }

    // Merges a head's sink into a running result: the partial of a block that nobody stores.
    void merge_sink(size_t at, size_t head) const {
        static constexpr float kSum = 1.0F, kOutput[kHeadDimMax] = {};
        static constexpr uint64_t kVisible = 1;
        network.kernels->attention_merge(
            {1, head_dim, &kVisible, work.partial_max + at, work.partial_sum + at,
             work.partial_output + at * head_dim, sinks + head, &kSum, kOutput});
    }

    // Completes a running result.
    void finish(size_t at, size_t kv_head, size_t row, size_t head) const {
        if (sinks != nullptr) {
            merge_sink(at, kv_head * group_heads + head);
        }
        const size_t place_of = row * network.config.heads + kv_head * group_heads + head;
        uint16_t *y = output + place_of * head_dim;
        const float *o = work.partial_output + at * head_dim;
        if (network.config.output_gate) { // the gate follows its head's query
            network.kernels->attention_finish_gated(
                o, work.partial_sum[at], work.query + (2 * place_of + 1) * head_dim, head_dim, y);
        } else {
            network.kernels->attention_finish(o, work.partial_sum[at], head_dim, y);
        }
    }
};

// Gathers the queries of the plan's readers and packs them, for every KV head.
void pack_readers(const Attention &a, const BlockPlan &plan, size_t kv_heads) {
    const size_t row_elements = a.group_heads * a.head_dim;
    a.network.threads->run(
        kv_heads * plan.readers.size(), 1, [&](size_t item, size_t, size_t thread) {
            const size_t kv_head = item / plan.readers.size();
            const BlockPlan::Readers &readers = plan.readers[item % plan.readers.size()];
            auto *gathered = static_cast<uint16_t *>(a.work.scratch_of(thread));
            const uint16_t *query = gathered;
            if (readers.count == 1) { // they lie together
                query = a.query(kv_head, a.pass.sequences[plan.members[readers.member]].row);
            } else {
                for (size_t i = 0; i < readers.count; ++i) {
                    const Sequence &sequence = a.pass.sequences[plan.members[readers.member + i]];
                    const size_t count = sequence.rows * row_elements;
                    std::memcpy(gathered, a.query(kv_head, sequence.row), count * sizeof(uint16_t));
                    gathered += count;
                }
            }
            a.pack_query(query, readers.rows,
                         a.work.packed_query + kv_head * plan.query_bytes + readers.query_at);
        });
}

// Where the partial of a row, head and block of its sequence lies.
size_t partial_index(const Attention &a, const BlockPlan &plan, size_t kv_head, size_t partial) {
    return (kv_head * plan.partials + partial) * a.group_heads;
}

// Folds the blocks of a row into its attention from one query head; where the sequence is tracked,
// adds up what they received.
void merge_row(const Attention &a, const BlockPlan &plan, const BlockPlan::Row &row, size_t kv_head,
               size_t head) {
    const auto index = [&](size_t i) {
        return partial_index(a, plan, kv_head, plan.partial_of[row.first + i] + row.of_sequence) +
               head;
    };
    const auto sees = [&](size_t i) {
        return plan.partial_of[row.first + i] != BlockPlan::kNone && a.work.visible[index(i)] != 0;
    };
    size_t into = SIZE_MAX; // the first block with something visible initialises
    float maximum = 0.0F;   // of that block alone
    for (size_t i = 0; i < row.blocks; ++i) {
        if (!sees(i)) {
            continue;
        }
        const size_t at = index(i);
        if (into == SIZE_MAX) {
            into = at;
            maximum = a.work.partial_max[at];
        } else {
            a.merge(into, at, 1);
        }
    }
    a.finish(into, kv_head, row.row, head);
    const Sequence &sequence = a.pass.sequence_of(row.row);
    if (sequence.sums == nullptr) {
        return;
    }
    const uint64_t first = first_visible(sequence.begin, a.window) / kPage;
    for (size_t i = 0; i < row.blocks; ++i) {
        if (sees(i)) {
            const size_t at = index(i);
            uint64_t received[kPage] = {};
            kernels::add_received(a.weights(at), at == into ? maximum : a.work.partial_max[at],
                                  a.work.partial_max[into], a.work.partial_sum[into], received);
            a.add_to_sums(sequence, first + i, kv_head * a.group_heads + head, received);
        }
    }
}

// Few rows each, perhaps over long contexts: (KV head, page) are the items, then rows merge.
void attend_by_block(const Attention &a) {
    const BlockPlan &plan = a.work.attention.groups[a.place.group];
    const size_t kv_heads = a.shape.kv_heads, heads = a.group_heads;
    a.work.fit_partials(plan.partials * heads * kv_heads, 1, a.head_dim,
                        kv_heads * plan.query_bytes);
    pack_readers(a, plan, kv_heads);
    const size_t reads = plan.reads.size(), items = kv_heads * reads;
    const size_t grain = std::clamp<size_t>(items / (4 * a.network.threads->count()), 1, 16);
    a.network.threads->run(items, grain, [&](size_t begin, size_t end, size_t thread) {
        for (size_t item = begin; item < end; ++item) {
            const size_t kv_head = item / reads;
            const BlockPlan::Read &read = plan.reads[item % reads];
            const BlockPlan::Readers &readers = plan.readers[read.readers];
            size_t at = partial_index(a, plan, kv_head, read.partial);
            const size_t first = at;
            for (size_t i = 0; i < readers.count; ++i) {
                const Sequence &sequence = a.pass.sequences[plan.members[readers.member + i]];
                for (size_t row = 0; row < sequence.rows; ++row, at += heads) {
                    a.set_visible(at, sequence, row, read.block);
                }
            }
            const Attention::Place here = {read.page, kv_head};
            const Attention::Place next = {plan.reads[(item + 1) % reads].page, (item + 1) / reads};
            a.block_partial(here, item + 1 < items ? &next : nullptr, readers.rows,
                            a.work.packed_query + kv_head * plan.query_bytes + readers.query_at,
                            first, thread);
        }
    });
    const size_t rows = plan.rows.size();
    a.network.threads->run(kv_heads * rows * heads, 4, [&](size_t begin, size_t end) {
        for (size_t item = begin; item < end; ++item) {
            merge_row(a, plan, plan.rows[item / heads % rows], item / heads / rows, item % heads);
        }
    });
}

// The blocks that a tile's rows see, and the partials of one of them after the other.
struct TileBlocks {
    const Attention &a;
    const Sequence &sequence;
    size_t row, count; // of the sequence
    size_t kv_head, from;
    const void *query;
    uint64_t first, last;

    Attention::Place page(uint64_t block) const {
        return {sequence.page(a.place.group, block * kPage), kv_head};
    }
    // The next block from here on that is not evicted whole; the last one never is.
    uint64_t held(uint64_t block) const {
        while (block < last && page(block).page == nullptr) {
            ++block;
        }
        return block;
    }

    void compute(uint64_t block, size_t thread) const {
        const Attention::Place here = page(block), next = page(held(std::min(block + 1, last)));
        for (size_t i = 0; i < count; ++i) {
            a.set_visible(from + i * a.group_heads, sequence, row + i, block);
        }
        a.block_partial(here, block < last ? &next : nullptr, count, query, from, thread);
    }
};

// What a tile's blocks received, once its rows' results are known, from index `into` on. Weights
// depend on these, so the blocks are computed once more: tracking alone pays for it.
void add_tile_to_sums(const TileBlocks &blocks, size_t into, size_t thread) {
    const Attention &a = blocks.a;
    for (uint64_t block = blocks.held(blocks.first); block <= blocks.last;
         block = blocks.held(block + 1)) {
        blocks.compute(block, thread);
        for (size_t head = 0; head < a.group_heads; ++head) {
            uint64_t received[kPage] = {};
            for (size_t i = head; i < blocks.count * a.group_heads; i += a.group_heads) {
                const size_t at = blocks.from + i;
                if (a.work.visible[at] != 0) {
                    kernels::add_received(a.weights(at), a.work.partial_max[at],
                                          a.work.partial_max[into + i],
                                          a.work.partial_sum[into + i], received);
                }
            }
            a.add_to_sums(blocks.sequence, block, blocks.kv_head * a.group_heads + head, received);
        }
    }
}

// Many rows: every (KV head, tile of a sequence's rows) is an item that walks its blocks in order.
// Two partials for each query row: the running result and the block's.
void attend_tile(const Attention &a, const RowTile &tile, size_t kv_head, size_t item,
                 size_t query_bytes, size_t thread) {
    const Sequence &sequence = a.pass.sequences[tile.sequence];
    const size_t tile_rows = a.work.attention.tiles[a.place.group].rows * a.group_heads;
    const size_t into = item * 2 * tile_rows, from = into + tile_rows;
    const uint64_t position = sequence.begin + tile.row;
    uint8_t *query = a.work.packed_query + item * query_bytes;
    const TileBlocks blocks{a,
                            sequence,
                            tile.row,
                            tile.count,
                            kv_head,
                            from,
                            query,
                            first_visible(position, a.window) / kPage,
                            a.last_visible(sequence, tile.row + tile.count - 1) / kPage};
    a.pack_query(a.query(kv_head, sequence.row + tile.row), tile.count, query);
    std::fill_n(a.work.partial_sum + into, tile.count * a.group_heads, 0.0F);
    for (uint64_t block = blocks.held(blocks.first); block <= blocks.last;
         block = blocks.held(block + 1)) {
        blocks.compute(block, thread);
        a.merge(into, from, tile.count * a.group_heads);
    }
    for (size_t i = 0; i < tile.count * a.group_heads; ++i) {
        a.finish(into + i, kv_head, sequence.row + tile.row + i / a.group_heads, i % a.group_heads);
    }
    if (sequence.sums != nullptr) {
        add_tile_to_sums(blocks, into, thread);
    }
}

void attend_by_row(const Attention &a) {
    const TilePlan &plan = a.work.attention.tiles[a.place.group];
    const std::vector<RowTile> &tiles = plan.tiles;
    const size_t kv_heads = a.shape.kv_heads, items = tiles.size() * kv_heads;
    const size_t tile_rows = plan.rows;
    const size_t query_bytes = packed_query_bytes(a.network, a.shape, tile_rows);
    a.work.fit_partials(items * tile_rows * a.group_heads, 2, a.head_dim, items * query_bytes);
    a.network.threads->run(items, 1, [&](size_t item, size_t, size_t thread) {
        attend_tile(a, tiles[item / kv_heads], item % kv_heads, item, query_bytes, thread);
    });
}

} // namespace

void attend(Pass &pass, size_t layer) {
    const Network &network = pass.network;
    CpuScratch &work = *pass.cpu;
    const LayerPlace place = network.layer_places[layer];
    const PageShape &shape = network.page_shapes[place.group];
    const Attention attention{network,
                              pass,
                              work,
                              shape,
                              place,
                              layer,
                              network.config.layer[layer].window,
                              network.config.heads / shape.kv_heads,
                              shape.head_dim,
                              work.narrow,
                              network.weights.layers[layer].sinks};
    if (work.attention.few) {
        attend_by_block(attention);
    }
    if (!work.attention.tiles[place.group].tiles.empty()) {
        attend_by_row(attention);
    }
}

} // namespace stasis
