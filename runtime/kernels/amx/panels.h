// Matrix products (C1) for many rows: weights, left operands, are packed into panels that all rows
// meet.
#pragma once

#include "runtime/kernels/amx/packed.h"
#include "runtime/kernels/amx/turned.h"

namespace stasis::kernels::amx {

// A panel is 32 outputs by kPanelTerms of the weights, in tiles. It stays in the L1 cache while the
// rows and the sums stream by from the L2 cache, loaded so that they do not drive it out; the L2
// cache keeps the rows' kPanelTerms for the panels to come: the L3 cache gives a thread no more
// than a third of what the tiles could multiply.
inline constexpr size_t kPanelTerms = 512;
inline constexpr size_t kPanelOutputs = 2 * kTileRows;
inline constexpr size_t kPanelBytes = kPanelOutputs * kPanelTerms * sizeof(uint16_t);
inline constexpr size_t kPairRows = 2 * kTileRows;
inline constexpr size_t kPanels = 8; // whose sums are kept from one kPanelTerms to the next
inline constexpr size_t kRows = 512; // likewise
inline constexpr size_t kSumBytes = 4 * kTileBytes;
// One pair's more: of the last pair's next sums, which nobody uses.
static_assert(kPanelBytes + (kRows / kPairRows * kPanels + 1) * kSumBytes <= kScratchBytes);

// What a pass over some rows and terms of a panel has in common.
template <typename Task> struct Pass {
    const Task &task;
    size_t output, outputs; // up to kPanelOutputs
    size_t row, rows;       // up to kRows
    size_t k, terms;        // up to kPanelTerms
    uint8_t *panel;         // [block][2 tiles]
    uint8_t *sums;          // [pair of groups][4 tiles]

    bool last() const { return k + terms == task.depth; }
};

// 32 outputs by 32 rows.
template <typename Task>
void multiply_tiles(const Pass<Task> &pass, const uint8_t *x, size_t group_bytes) {
    const uint8_t *panel = pass.panel;
    const size_t block_count = blocks_in(pass.terms);
    for (size_t block = 0; block < block_count; ++block) {
        load_passing<6>(x + block * kTileBytes, 64);
        load<4>(panel + block * 2 * kTileBytes, 64);
        multiply_add<0, 4, 6>();
        load_passing<7>(x + group_bytes + block * kTileBytes, 64);
        multiply_add<1, 4, 7>();
        load<5>(panel + block * 2 * kTileBytes + kTileBytes, 64);
        multiply_add<2, 5, 6>();
        multiply_add<3, 5, 7>();
    }
}

// Stores a tile of sums and starts the next pair's: nothing else waits between the two, so that a
// tile is taken up again while others are still computed.
template <int tile> void next_sums(uint8_t *sum, const uint8_t *next, bool first) {
    store<tile>(sum + tile * kTileBytes, 64);
    if (first) {
        zero<tile>();
    } else {
        load_passing<tile>(next + tile * kTileBytes, 64);
    }
}

template <typename Task> void store_sums(const Pass<Task> &pass, const uint8_t *sum, size_t row) {
    const size_t end = pass.output + pass.outputs;
    for (size_t tile = 0; tile < 4; ++tile) {
        const size_t n = pass.output + tile / 2 * kTileRows, r = row + tile % 2 * kTileRows;
        if (n < end && r < pass.task.rows) {
            store_turned(pass.task, sum + tile * kTileBytes, n, end, r);
        }
    }
}

template <typename Task> void multiply_panel(const Pass<Task> &pass) {
    const size_t group_bytes = blocks_in(pass.task.depth) * kTileBytes;
    const auto *packed = static_cast<const uint8_t *>(pass.task.packed) +
                         pass.row / kTileRows * group_bytes + pass.k / kBlock * kTileBytes;
    const bool first = pass.k == 0;
    if (first) {
        zero<0>(), zero<1>(), zero<2>(), zero<3>();
    } else {
        load_passing<0>(pass.sums, 64), load_passing<1>(pass.sums + kTileBytes, 64);
        load_passing<2>(pass.sums + 2 * kTileBytes, 64);
        load_passing<3>(pass.sums + 3 * kTileBytes, 64);
    }
    uint8_t *sum = pass.sums;
    for (size_t row = 0; row < pass.rows; row += kPairRows, sum += kSumBytes) {
        multiply_tiles(pass, packed + row / kTileRows * group_bytes, group_bytes);
        alignas(64) uint8_t finished[kSumBytes]; // of the last pass: on its way into y
        uint8_t *to = pass.last() ? finished : sum;
        next_sums<0>(to, sum + kSumBytes, first), next_sums<1>(to, sum + kSumBytes, first);
        next_sums<2>(to, sum + kSumBytes, first), next_sums<3>(to, sum + kSumBytes, first);
        if (pass.last()) {
            store_sums(pass, finished, pass.row + row);
        }
    }
}

// Some panels of outputs by some rows.
template <typename Task, typename PackPanel>
void multiply_panels(const Task &task, size_t begin, size_t end, size_t row,
                     const PackPanel &pack) {
    auto *scratch = static_cast<uint8_t *>(task.scratch);
    const size_t rows = smaller(task.rows - row, kRows);
    for (size_t k = 0; k < task.depth; k += kPanelTerms) {
        const size_t terms = smaller(task.depth - k, kPanelTerms);
        uint8_t *sums = scratch + kPanelBytes;
        for (size_t output = begin; output < end; output += kPanelOutputs) {
            const size_t outputs = smaller(end - output, kPanelOutputs);
            const Pass<Task> pass{task, output, outputs, row, rows, k, terms, scratch, sums};
            pack(pass);
            multiply_panel(pass);
            sums += kRows / kPairRows * kSumBytes;
        }
    }
}

// pack(pass) writes the pass's part of the weights into its panel; what stands there for outputs
// and terms that do not exist is finite.
template <typename Task, typename PackPanel>
void multiply_many(const Task &task, const PackPanel &pack) {
    const Tiles tiles(TileConfig(kTileRows, kTileRows));
    constexpr size_t kOutputs = kPanels * kPanelOutputs;
    for (size_t row = 0; row < task.rows; row += kRows) {
        for (size_t output = 0; output < task.outputs; output += kOutputs) {
            multiply_panels(task, output, smaller(output + kOutputs, task.outputs), row, pack);
        }
    }
}

} // namespace stasis::kernels::amx
