// Attention over pages by fixed blocks (C5): which slots a query sees, and how the work is split
// over threads. A block's partial and the order of merging do not depend on the split.
#include <algorithm>
#include <cstring>

#include "runtime/forward.h"

namespace stasis {

namespace {

constexpr uint64_t kBlock = kernels::kPagePositions;

// Up to this many rows, blocks are split over threads; above, rows are.
constexpr size_t kRowsByBlock = 4;
constexpr size_t kRowsTile = 16;

// First position that a query at `position` sees.
uint64_t first_visible(uint64_t position, uint32_t window) {
    return window == 0 || position < window ? 0 : position - window + 1;
}

// Slots of a block that a query at `position` sees, as a bit mask.
uint64_t visible_slots(uint64_t position, uint32_t window, uint64_t block) {
    const uint64_t base = block * kBlock;
    const uint64_t low = std::max(first_visible(position, window), base);
    const uint64_t high = std::min(position, base + kBlock - 1);
    if (low > high) {
        return 0;
    }
    return (~uint64_t{0} >> (kBlock - 1 - (high - low))) << (low - base);
}

// What the two ways of splitting share.
struct Attention {
    const Model &model;
    Workspace &work;
    const PageShape &shape;
    LayerPlace place;
    uint32_t window;
    uint64_t begin;     // position of the first row
    size_t rows;        // T
    size_t group_heads; // query heads per KV head
    size_t head_dim;
    uint16_t *output; // [T][heads * head_dim]

    // Of packed queries, so that the next ones are aligned as well.
    size_t query_bytes(size_t count) const {
        return (model.kernels->packed_bytes(count * group_heads, head_dim) + 63) / 64 * 64;
    }

    // The queries of `count` rows from `row` on that share a KV head.
    void pack_query(size_t kv_head, size_t row, size_t count, void *packed) const {
        const uint16_t *query = work.query_bf16 + (kv_head * rows + row) * group_heads * head_dim;
        const size_t query_rows = count * group_heads;
        model.kernels->pack({query, head_dim, query_rows, head_dim, packed}, 0, query_rows);
    }

    const uint16_t *keys(size_t kv_head, uint64_t block) const {
        return work.pages[place.group][block - work.first_page[place.group]] +
               shape.offset(place.index, 0, kv_head);
    }

    const uint16_t *values(size_t kv_head, uint64_t block) const {
        return work.pages[place.group][block - work.first_page[place.group]] +
               shape.offset(place.index, 1, kv_head);
    }

    // A block of a KV head's positions.
    struct Place {
        size_t kv_head;
        uint64_t block;
    };

    // One block for `count` rows from `row` on, their queries packed; results at index `at` of the
    // partial arrays, one for each query row. `next`: what the same thread will take then, if any.
    void block_partial(Place here, const Place *next, size_t row, size_t count, const void *query,
                       size_t at, size_t thread) const {
        for (size_t i = 0; i < count * group_heads; ++i) {
            work.visible[at + i] = visible_slots(begin + row + i / group_heads, window, here.block);
        }
        kernels::AttentionBlock task;
        task.query = query;
        task.visible = work.visible + at;
        task.keys = keys(here.kv_head, here.block);
        task.values = values(here.kv_head, here.block);
        task.next_keys = next != nullptr ? keys(next->kv_head, next->block) : nullptr;
        task.next_values = next != nullptr ? values(next->kv_head, next->block) : nullptr;
        task.rows = count * group_heads;
        task.head_dim = head_dim;
        task.scale = model.config.attention_scale;
        task.softcap = model.config.attention_softcap;
        task.maximum = work.partial_max + at;
        task.sum = work.partial_sum + at;
        task.output = work.partial_output + at * head_dim;
        task.scratch = work.scratch_of(thread);
        model.kernels->attention_block(task);
    }

    // Folds the partial at index `from` into the running result at index `into`.
    void merge(size_t into, size_t from) const {
        float *o = work.partial_output + into * head_dim;
        const float *o_b = work.partial_output + from * head_dim;
        model.kernels->attention_merge(work.partial_max + into, work.partial_sum + into, o,
                                       work.partial_max[from], work.partial_sum[from], o_b,
                                       head_dim);
    }

    void finish(size_t at, size_t kv_head, size_t row, size_t head) const {
        uint16_t *y =
            output + ((row * model.config.kv_heads + kv_head) * group_heads + head) * head_dim;
        model.kernels->attention_finish(work.partial_output + at * head_dim, work.partial_sum[at],
                                        head_dim, y);
    }
};

// Few rows, perhaps over a long context: (KV head, block) are the items, then rows merge.
void attend_by_block(const Attention &a) {
    const uint64_t first = first_visible(a.begin, a.window) / kBlock;
    const uint64_t blocks = (a.begin + a.rows - 1) / kBlock + 1 - first;
    const size_t query_rows = a.rows * a.group_heads; // of one KV head
    const size_t kv_heads = a.model.config.kv_heads;
    const size_t query_bytes = a.query_bytes(a.rows);
    a.work.fit_partials(query_rows * kv_heads, blocks, a.head_dim, kv_heads * query_bytes);
    for (size_t kv_head = 0; kv_head < kv_heads; ++kv_head) {
        a.pack_query(kv_head, 0, a.rows, a.work.packed_query + kv_head * query_bytes);
    }
    const size_t items = kv_heads * blocks;
    const size_t grain = std::clamp<size_t>(items / (4 * a.model.threads->count()), 1, 16);
    a.model.threads->run(items, grain, [&](size_t begin, size_t end, size_t thread) {
        for (size_t item = begin; item < end; ++item) {
            const Attention::Place here = {item / blocks, first + item % blocks};
            const Attention::Place next = {(item + 1) / blocks, first + (item + 1) % blocks};
            a.block_partial(here, item + 1 < items ? &next : nullptr, 0, a.rows,
                            a.work.packed_query + here.kv_head * query_bytes, item * query_rows,
                            thread);
        }
    });
    a.model.threads->run(kv_heads * query_rows, 4, [&](size_t begin, size_t end) {
        for (size_t item = begin; item < end; ++item) {
            const size_t kv_head = item / query_rows, query_row = item % query_rows;
            const size_t start = kv_head * blocks * query_rows + query_row;
            size_t into = start; // the first block with something visible initialises
            while (a.work.visible[into] == 0) {
                into += query_rows;
            }
            for (size_t at = into + query_rows; at < start + blocks * query_rows;
                 at += query_rows) {
                if (a.work.visible[at] != 0) {
                    a.merge(into, at);
                }
            }
            a.finish(into, kv_head, query_row / a.group_heads, query_row % a.group_heads);
        }
    });
}

// Many rows: every (KV head, tile of rows) is an item that walks its blocks in order. Two partials
// for each query row: the running result and the block's.
void attend_by_row(const Attention &a) {
    const size_t kv_heads = a.model.config.kv_heads;
    const size_t tiles = (a.rows + kRowsTile - 1) / kRowsTile;
    const size_t tile_rows = kRowsTile * a.group_heads;
    const size_t query_bytes = a.query_bytes(kRowsTile);
    a.work.fit_partials(tiles * kv_heads * tile_rows, 2, a.head_dim,
                        tiles * kv_heads * query_bytes);
    a.model.threads->run(tiles * kv_heads, 1, [&](size_t begin, size_t end, size_t thread) {
        for (size_t item = begin; item < end; ++item) {
            const size_t kv_head = item % kv_heads;
            const size_t row = item / kv_heads * kRowsTile;
            const size_t count = std::min(kRowsTile, a.rows - row);
            const size_t into = item * 2 * tile_rows, from = into + tile_rows;
            const uint64_t first = first_visible(a.begin + row, a.window) / kBlock;
            const uint64_t last = (a.begin + row + count - 1) / kBlock;
            uint8_t *query = a.work.packed_query + item * query_bytes;
            a.pack_query(kv_head, row, count, query);
            std::fill_n(a.work.partial_sum + into, count * a.group_heads, 0.0F);
            for (uint64_t block = first; block <= last; ++block) {
                const Attention::Place here = {kv_head, block}, next = {kv_head, block + 1};
                a.block_partial(here, block < last ? &next : nullptr, row, count, query, from,
                                thread);
                for (size_t i = 0; i < count * a.group_heads; ++i) {
                    if (a.work.visible[from + i] == 0) {
                        continue;
                    }
                    if (a.work.partial_sum[into + i] == 0.0F) { // a partial's sum is at least 1
                        a.work.partial_max[into + i] = a.work.partial_max[from + i];
                        a.work.partial_sum[into + i] = a.work.partial_sum[from + i];
                        std::memcpy(a.work.partial_output + (into + i) * a.head_dim,
                                    a.work.partial_output + (from + i) * a.head_dim,
                                    a.head_dim * sizeof(float));
                    } else {
                        a.merge(into + i, from + i);
                    }
                }
            }
            for (size_t i = 0; i < count * a.group_heads; ++i) {
                a.finish(into + i, kv_head, row + i / a.group_heads, i % a.group_heads);
            }
        }
    });
}

} // namespace

void attend(const Model &model, Workspace &work, size_t layer, uint64_t begin, size_t rows,
            uint16_t *output) {
    const LayerPlace place = model.layer_places[layer];
    const Attention attention{model,
                              work,
                              model.pool->shape(place.group),
                              place,
                              model.config.layer[layer].window,
                              begin,
                              rows,
                              model.config.heads / model.config.kv_heads,
                              model.config.head_dim,
                              output};
    if (rows <= kRowsByBlock) {
        attend_by_block(attention);
    } else {
        attend_by_row(attention);
    }
}

} // namespace stasis
