// Matrix products by the block rule (C1): a tile step computes one block of it for 16 x 16 outputs.
// Weights are the left operand, row-major as they lie in the checkpoint; a product comes out turned
// [outputs][rows]. Few rows stream the weights from memory; many reuse them from panels.
#include "runtime/kernels/amx/kernels.h"
#include "runtime/kernels/amx/packed.h"
#include "runtime/kernels/amx/transpose.h"

namespace stasis::kernels::amx {

namespace {

size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

// Few rows -----------------------------------------------------------------------------------

constexpr size_t kAhead = 512; // terms that a row of weights is fetched ahead of its use

// Terms from k on of `outputs` rows of weights, +0 beyond the end: the last block of a row.
void load_tail(const Matmul &task, const uint16_t *w, size_t outputs, size_t k) {
    alignas(64) uint16_t tail[kTileRows][kBlock] = {};
    for (size_t n = 0; n < outputs; ++n) {
        __builtin_memcpy(tail[n], w + n * task.w_stride + k, (task.depth - k) * sizeof(uint16_t));
    }
    load<4>(tail, 64);
}

void fetch(const uint16_t *w, size_t stride, size_t outputs) {
    for (size_t n = 0; n < outputs; ++n) {
        _mm_prefetch(reinterpret_cast<const char *>(w + n * stride), _MM_HINT_T0);
    }
}

// Up to 16 outputs, their weights streamed; `next` are the weights that come after them.
void stream_tile(const Matmul &task, const uint16_t *w, const uint16_t *next, size_t outputs,
                 float *turned) {
    const auto *x = static_cast<const uint8_t *>(task.packed);
    const size_t x_bytes = task.rows * 4;
    const size_t whole = task.depth / kBlock * kBlock;
    zero<0>();
    for (size_t k = 0; k < whole; k += kBlock) {
        const size_t ahead = k + kAhead;
        fetch(ahead < task.depth ? w + ahead : next + (ahead - task.depth), task.w_stride, outputs);
        load<6>(x + k * x_bytes / 2, x_bytes);
        load<4>(w + k, task.w_stride * sizeof(uint16_t));
        multiply_add<0, 4, 6>();
    }
    if (whole < task.depth) {
        load<6>(x + whole * x_bytes / 2, x_bytes);
        load_tail(task, w, outputs, whole);
        multiply_add<0, 4, 6>();
    }
    store<0>(turned, x_bytes);
}

void stream(const Matmul &task) {
    Tiles tiles(TileConfig(kTileRows, task.rows));
    alignas(64) float turned[kTileFloats]; // [outputs][rows]
    for (size_t output = 0; output < task.outputs; output += kTileRows) {
        const size_t outputs = smaller(task.outputs - output, kTileRows);
        if (outputs < kTileRows) {
            tiles.configure(TileConfig(outputs, task.rows));
        }
        const uint16_t *w = task.w + output * task.w_stride;
        stream_tile(task, w, w + outputs * task.w_stride, outputs, turned);
        for (size_t r = 0; r < task.rows; ++r) {
            for (size_t n = 0; n < outputs; ++n) {
                task.y[r * task.y_stride + output + n] = turned[n * task.rows + r];
            }
        }
    }
}

// Many rows ----------------------------------------------------------------------------------

// A panel is 32 outputs by kPanelTerms of the weights, as they lie. The L2 cache keeps it while the
// rows stream by, and kPanelTerms of the rows for the panels to come.
constexpr size_t kPanelTerms = 512;
constexpr size_t kPanelOutputs = 2 * kTileRows;
constexpr size_t kPanelBytes = kPanelOutputs * kPanelTerms * sizeof(uint16_t);
constexpr size_t kPairRows = 2 * kTileRows;
constexpr size_t kPanels = 8; // whose sums are kept from one kPanelTerms to the next
constexpr size_t kRows = 512; // likewise
constexpr size_t kSumBytes = 4 * kTileBytes;
static_assert(kPanelBytes + kRows / kPairRows * kPanels * kSumBytes <= kScratchBytes);

// The left operands of a panel: two tiles for each block of terms.
struct Panel {
    const uint8_t *data;
    size_t row_bytes;  // between the rows of a tile
    size_t tile_bytes; // between the two tiles
};

// What a pass over some rows and terms of a panel has in common.
struct Pass {
    const Matmul &task;
    size_t output, outputs; // up to kPanelOutputs
    size_t row, rows;       // up to kRows
    size_t k, terms;        // up to kPanelTerms
    Panel panel;
    uint8_t *sums; // [pair of groups][4 tiles]

    bool last() const { return k + terms == task.depth; }
};

// The weights of the pass after this one, fetched while this one computes, two lines at each step.
struct Ahead {
    const uint16_t *w;
    size_t stride;
    size_t rows;
    size_t row = 0, line = 0;

    void fetch() {
        if (row < rows) {
            const auto *from = reinterpret_cast<const char *>(w + row * stride) + line * 64;
            _mm_prefetch(from, _MM_HINT_T1);
            _mm_prefetch(from + 64, _MM_HINT_T1);
            line += 2;
            if (line == kPanelTerms * sizeof(uint16_t) / 64) {
                line = 0;
                ++row;
            }
        }
    }
};

// Weights where they lie, if nothing has to be filled up; else copied with +0 around them.
Panel panel_of(const Matmul &task, size_t output, size_t outputs, size_t k, size_t terms,
               uint8_t *copy) {
    const uint16_t *w = task.w + output * task.w_stride + k;
    if (outputs == kPanelOutputs && terms % kBlock == 0) {
        const size_t row_bytes = task.w_stride * sizeof(uint16_t);
        return {reinterpret_cast<const uint8_t *>(w), row_bytes, kTileRows * row_bytes};
    }
    const size_t row_bytes = blocks(terms) * 64;
    __builtin_memset(copy, 0, kPanelOutputs * row_bytes);
    for (size_t n = 0; n < outputs; ++n) {
        __builtin_memcpy(copy + n * row_bytes, w + n * task.w_stride, terms * sizeof(uint16_t));
    }
    return {copy, row_bytes, kTileRows * row_bytes};
}

// 32 outputs by 32 rows.
void multiply_tiles(const Pass &pass, const uint8_t *x, size_t group_bytes, uint8_t *sum,
                    Ahead &ahead) {
    if (pass.k == 0) {
        zero<0>(), zero<1>(), zero<2>(), zero<3>();
    } else {
        load<0>(sum, 64), load<1>(sum + kTileBytes, 64);
        load<2>(sum + 2 * kTileBytes, 64), load<3>(sum + 3 * kTileBytes, 64);
    }
    const Panel panel = pass.panel;
    for (size_t block = 0; block < blocks(pass.terms); ++block) {
        const uint8_t *w = panel.data + block * 64;
        load<6>(x + block * kTileBytes, 64);
        load<4>(w, panel.row_bytes);
        multiply_add<0, 4, 6>();
        load<7>(x + group_bytes + block * kTileBytes, 64);
        multiply_add<1, 4, 7>();
        load<5>(w + panel.tile_bytes, panel.row_bytes);
        multiply_add<2, 5, 6>();
        multiply_add<3, 5, 7>();
        ahead.fetch();
    }
    store<0>(sum, 64), store<1>(sum + kTileBytes, 64);
    store<2>(sum + 2 * kTileBytes, 64), store<3>(sum + 3 * kTileBytes, 64);
}

// A finished tile [outputs][rows] into y.
void store_turned(const Pass &pass, const uint8_t *tile, size_t output, size_t row) {
    const size_t rows = smaller(pass.task.rows - row, kTileRows);
    const size_t outputs = smaller(pass.output + pass.outputs - output, kTileRows);
    const auto mask = static_cast<__mmask16>(0xFFFFU >> (16 - outputs));
    __m512i sums[16];
    for (size_t n = 0; n < 16; ++n) {
        sums[n] = _mm512_load_si512(tile + n * 64);
    }
    transpose(sums);
    float *y = pass.task.y + row * pass.task.y_stride + output;
    for (size_t r = 0; r < 16; ++r) {
        if (r < rows) {
            _mm512_mask_storeu_epi32(y + r * pass.task.y_stride, mask, sums[r]);
        }
    }
}

void store_sums(const Pass &pass, const uint8_t *sum, size_t row) {
    for (size_t tile = 0; tile < 4; ++tile) {
        const size_t n = pass.output + tile / 2 * kTileRows, r = row + tile % 2 * kTileRows;
        if (n < pass.output + pass.outputs && r < pass.task.rows) {
            store_turned(pass, sum + tile * kTileBytes, n, r);
        }
    }
}

void multiply_panel(const Pass &pass, Ahead ahead) {
    const size_t group_bytes = blocks(pass.task.depth) * kTileBytes;
    const auto *packed = static_cast<const uint8_t *>(pass.task.packed) +
                         pass.row / kTileRows * group_bytes + pass.k / kBlock * kTileBytes;
    for (size_t row = 0; row < pass.rows; row += kPairRows) {
        uint8_t *sum = pass.sums + row / kPairRows * kSumBytes;
        multiply_tiles(pass, packed + row / kTileRows * group_bytes, group_bytes, sum, ahead);
        if (pass.last()) {
            store_sums(pass, sum, pass.row + row);
        }
    }
}

// Some panels of outputs by some rows.
void multiply_panels(const Matmul &task, size_t begin, size_t end, size_t row) {
    auto *scratch = static_cast<uint8_t *>(task.scratch);
    const size_t rows = smaller(task.rows - row, kRows);
    for (size_t k = 0; k < task.depth; k += kPanelTerms) {
        const size_t terms = smaller(task.depth - k, kPanelTerms);
        uint8_t *sums = scratch + kPanelBytes;
        for (size_t output = begin; output < end; output += kPanelOutputs) {
            const size_t outputs = smaller(end - output, kPanelOutputs);
            const Panel panel = panel_of(task, output, outputs, k, terms, scratch);
            const bool turn = output + outputs == end; // back to the first panel, further on
            const size_t next = turn ? begin : output + outputs;
            const uint16_t *w = task.w + next * task.w_stride + (turn ? k + terms : k);
            multiply_panel({task, output, outputs, row, rows, k, terms, panel, sums},
                           {w, task.w_stride, smaller(end - next, kPanelOutputs)});
            sums += kRows / kPairRows * kSumBytes;
        }
    }
}

} // namespace

void matmul(const Matmul &task) {
    if (task.rows <= kTileRows) {
        stream(task);
        return;
    }
    const Tiles tiles(TileConfig(kTileRows, kTileRows));
    constexpr size_t kOutputs = kPanels * kPanelOutputs;
    for (size_t row = 0; row < task.rows; row += kRows) {
        for (size_t output = 0; output < task.outputs; output += kOutputs) {
            multiply_panels(task, output, smaller(output + kOutputs, task.outputs), row);
        }
    }
}

} // namespace stasis::kernels::amx
