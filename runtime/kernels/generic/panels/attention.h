// One attention block (C5) as two matrix products: queries with the panel of keys, weights p with
// panels of values, and between them what generic/lanes/ computes.
#pragma once

#include "runtime/kernels/generic/lanes/functions.h"
#include "runtime/kernels/generic/panels/product.h"

namespace stasis::kernels::STASIS_TABLE {

// Rows of a block that are computed together.
inline constexpr size_t kAttentionRows = 144; // a multiple of every table's kRows

// Where the parts of an attention block lie in scratch.
template <typename V> struct AttentionScratch {
    static constexpr size_t kHeadDimMax = 1024;

    alignas(64) uint32_t panel[kPanelBlocks * kWords<V> * V::kVectors * V::kLanes];
    float scores[kAttentionRows * kPagePositions];
    uint16_t p[kAttentionRows * kPagePositions];
    uint32_t weights[kAttentionRows * kPagePositions / V::kPairs]; // p, packed
    float output[kAttentionRows * kHeadDimMax];
    uint16_t nothing[kHeadDimMax]; // the value of slots that nobody sees
};

// The keys and values of the block that is taken next, on their way into the caches a few lines at
// a time: a burst would wait for memory, and the computation with it.
struct Upcoming {
    uintptr_t keys, values;
    size_t lines; // left, of keys and values together
    size_t key_lines;

    explicit Upcoming(const AttentionBlock &task)
        : keys(reinterpret_cast<uintptr_t>(task.next_keys)),
          values(reinterpret_cast<uintptr_t>(task.next_values)),
          key_lines(kPagePositions * task.head_dim * sizeof(uint16_t) / 64) {
        lines = keys == 0 ? 0 : 2 * key_lines;
    }

    [[gnu::always_inline]] inline void fetch(size_t most) {
        for (size_t end = lines - smaller(most, lines); lines > end; --lines) {
            uintptr_t &next = lines > key_lines ? keys : values;
            __builtin_prefetch(reinterpret_cast<const void *>(next), 0, 2);
            next += 64;
        }
    }
};

// `count` dimensions of all slots, from `begin` on, as a panel. value[s] is the value of slot s.
template <typename V, typename Fetch>
[[gnu::flatten]] void pack_values(const uint16_t *const *value, size_t begin, size_t count,
                                  uint32_t *panel, const Fetch &fetch) {
    const size_t width = (count + V::kLanes - 1) / V::kLanes * V::kLanes;
    for (size_t n = 0; n < count; n += V::kLanes) {
        const size_t lanes = smaller(V::kLanes, count - n);
        const auto load = [&](size_t slot) {
            const uint16_t *from = value[slot] + begin + n;
            if (lanes == V::kLanes) {
                return V::load_wide(from);
            }
            uint16_t padded[V::kLanes] = {};
            __builtin_memcpy(padded, from, lanes * sizeof(uint16_t));
            return V::load_wide(padded);
        };
        uint32_t *to = panel + n;
        for (size_t slot = 0; slot < kPagePositions; slot += 2 * V::kPairs) {
            typename V::Words even[V::kPairs], odd[V::kPairs];
            unroll<V::kPairs>([&]<size_t i>() {
                even[i] = load(slot + 2 * i);
                odd[i] = load(slot + 2 * i + 1);
            });
            V::store(to, V::join(even));
            V::store(to + kSteps<V> * width, V::join(odd));
            to += width;
            if ((slot + 2 * V::kPairs) % kBlock == 0) { // over the odd chain to the next block
                fetch();
                to += kSteps<V> * width;
            }
        }
    }
}

// From one row's products with the keys to its p, m and l.
inline void weigh_row(const AttentionBlock &task, size_t row, const float *products, uint16_t *p) {
    constexpr size_t kVectors = kPagePositions / kLanes;
    const uint64_t visible = task.visible[row];
    Lanes scores[kVectors];
    Lanes largest = broadcast(-__builtin_inff());
    for (size_t i = 0; i < kVectors; ++i) {
        scores[i] = load(products + i * kLanes) * broadcast(task.scale);
        if (task.softcap != 0.0F) {
            const Lanes cap = broadcast(task.softcap);
            scores[i] = cap * tanh(scores[i] / cap);
        }
        const Mask mask = mask_of(static_cast<uint16_t>(visible >> (i * kLanes)));
        largest = select(mask, larger(scores[i], largest), largest);
    }
    const float maximum = largest_of(largest) + 0.0F; // a zero is stored as +0
    Lanes sum = broadcast(0.0F);
    for (size_t i = 0; i < kVectors; ++i) {
        const Lanes rounded = rounded_to_bf16(exp(scores[i] - broadcast(maximum)));
        const Mask mask = mask_of(static_cast<uint16_t>(visible >> (i * kLanes)));
        const Lanes weight = select(mask, rounded, broadcast(0.0F));
        sum = sum + weight;
        store_upper_halves(weight, p + i * kLanes);
    }
    task.maximum[row] = maximum;
    task.sum[row] = sum_of(sum);
}

template <typename V>
void attend_rows(const AttentionBlock &task, size_t begin, size_t rows,
                 const uint16_t *const *value, Upcoming &upcoming, AttentionScratch<V> &scratch) {
    const size_t head_dim = task.head_dim;
    const auto *query = static_cast<const uint32_t *>(task.query);
    // Measured: lines for each block of kLanes keys, of kLanes dimensions, and for each row.
    constexpr size_t kLinesByBlock = 12, kLinesByRow = 16;
    multiply_panels<V>(query + begin * blocks_in(head_dim) * kWords<V>, rows, kPagePositions,
                       head_dim, scratch.scores, kPagePositions, scratch.panel,
                       [&](size_t slot, size_t count, size_t from, size_t to, uint32_t *panel) {
                           const auto strip = [&](size_t n) {
                               return Strip<V>(task.keys + (slot + n) * head_dim, head_dim,
                                               smaller(V::kLanes, count - n), head_dim);
                           };
                           pack_panel<V>(
                               count, from, to, panel, strip,
                               [&](const Strip<V> &, size_t) { upcoming.fetch(kLinesByBlock); });
                       });
    for (size_t r = 0; r < rows; ++r) {
        if (task.visible[begin + r] != 0) {
            upcoming.fetch(kLinesByRow);
            uint16_t *p = scratch.p + r * kPagePositions;
            weigh_row(task, begin + r, scratch.scores + r * kPagePositions, p);
            if (task.weights != nullptr) {
                __builtin_memcpy(task.weights + (begin + r) * kPagePositions, p,
                                 kPagePositions * sizeof(uint16_t));
            }
        }
    }
    pack<V>({scratch.p, kPagePositions, rows, kPagePositions, scratch.weights}, 0, rows);
    multiply_panels<V>(
        scratch.weights, rows, head_dim, kPagePositions, scratch.output, head_dim, scratch.panel,
        [&](size_t from, size_t count, size_t, size_t, uint32_t *panel) {
            pack_values<V>(value, from, count, panel, [&] { upcoming.fetch(kLinesByBlock); });
        });
    for (size_t r = 0; r < rows; ++r) {
        if (task.visible[begin + r] != 0) {
            const float *from = scratch.output + r * head_dim;
            float *to = task.output + (begin + r) * head_dim;
            by_lanes(head_dim, [&](size_t i, size_t count) STASIS_STEP {
                store(load(from + i, count) + broadcast(0.0F), to + i, count); // no -0
            });
        }
    }
}

template <typename V> void attention_block(const AttentionBlock &task) {
    static_assert(sizeof(AttentionScratch<V>) <= kScratchBytes && kAttentionRows % V::kRows == 0);
    auto &scratch = *static_cast<AttentionScratch<V> *>(task.scratch);
    uint64_t seen = 0;
    for (size_t row = 0; row < task.rows; ++row) {
        seen |= task.visible[row];
    }
    __builtin_memset(scratch.nothing, 0, task.head_dim * sizeof(uint16_t));
    const uint16_t *value[kPagePositions];
    for (size_t slot = 0; slot < kPagePositions; ++slot) {
        value[slot] =
            (seen >> slot & 1U) != 0 ? task.values + slot * task.head_dim : scratch.nothing;
    }
    Upcoming upcoming(task);
    for (size_t row = 0; row < task.rows; row += kAttentionRows) {
        attend_rows<V>(task, row, smaller(kAttentionRows, task.rows - row), value, upcoming,
                       scratch);
    }
    upcoming.fetch(upcoming.lines);
}

// Enters the kernels that panels compute with vectors of type V.
template <typename V> [[gnu::always_inline]] inline void add_panels(Table &table) {
    table.pack = pack<V>;
    table.packed_bytes = packed_bytes<V>;
    table.matmul = matmul<V>;
    table.attention_block = attention_block<V>;
}

} // namespace stasis::kernels::STASIS_TABLE
