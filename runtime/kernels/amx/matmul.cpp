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

// A panel is 32 outputs by kPanelTerms, in tiles; six of them stay in the L2 cache, and the
// terms of two groups of rows that they meet in the L1 cache.
constexpr size_t kPanelTerms = 512;
constexpr size_t kPanelOutputs = 2 * kTileRows;
constexpr size_t kPanels = 6;
constexpr size_t kPanelBytes = kPanelOutputs * kPanelTerms * sizeof(uint16_t);
constexpr size_t kRows = 512; // whose sums are kept meanwhile
constexpr size_t kSumBytes = 4 * kTileBytes;
static_assert(kPanels * kPanelBytes + kRows / 32 * kPanels * kSumBytes <= kScratchBytes);

// What a pass over some outputs, rows and terms has in common.
struct Pass {
    const Matmul &task;
    size_t output, outputs; // up to kPanels panels
    size_t row, rows;       // up to kRows
    size_t k, terms;        // up to kPanelTerms
    uint8_t *panels;        // [panel][block][2 tiles]
    uint8_t *sums;          // [pair of groups][panel][4 tiles]

    size_t panel_count() const { return (outputs + kPanelOutputs - 1) / kPanelOutputs; }
    bool last() const { return k + terms == task.depth; }
};

// The rows of weights that the next pass packs, fetched while this one computes.
struct Ahead {
    const uint16_t *w; // null: none
    size_t stride;
    size_t rows;
    size_t lines; // cache lines of a row
    size_t row = 0;

    void fetch_rows(size_t count) {
        for (; count > 0 && row < rows; --count, ++row) {
            const auto *line = reinterpret_cast<const char *>(w + row * stride);
            for (size_t i = 0; i < lines; ++i) {
                _mm_prefetch(line + i * 64, _MM_HINT_T1);
            }
        }
    }
};

void pack_panels(const Pass &pass) {
    const size_t block_count = blocks(pass.terms);
    for (size_t n = 0; n < pass.panel_count() * kPanelOutputs; ++n) {
        uint8_t *to = pass.panels + n / kPanelOutputs * kPanelBytes +
                      n % kPanelOutputs / kTileRows * kTileBytes + n % kTileRows * 64;
        const uint16_t *from = pass.task.w + (pass.output + n) * pass.task.w_stride + pass.k;
        for (size_t block = 0; block < block_count; ++block) {
            __m512i terms = _mm512_setzero_si512();
            if (n < pass.outputs) {
                const size_t left = smaller(pass.terms - block * kBlock, kBlock);
                terms = _mm512_maskz_loadu_epi16(
                    static_cast<__mmask32>(~uint64_t{0} >> (64 - left)), from + block * kBlock);
            }
            _mm512_store_si512(to + block * 2 * kTileBytes, terms);
        }
    }
}

// Lines of each group of rows that a step fetches ahead: those of the next pair of groups, spread
// over the panels that this pair meets.
constexpr size_t kFetchedLines = (kTileBytes / 64 + kPanels - 1) / kPanels;

// 32 outputs by 32 rows; `next_x` is fetched meanwhile.
void multiply_tiles(const Pass &pass, const uint8_t *panel, const uint8_t *x, size_t group_bytes,
                    const char *next_x, uint8_t *sum) {
    if (pass.k == 0) {
        zero<0>(), zero<1>(), zero<2>(), zero<3>();
    } else {
        load<0>(sum, 64), load<1>(sum + kTileBytes, 64);
        load<2>(sum + 2 * kTileBytes, 64), load<3>(sum + 3 * kTileBytes, 64);
    }
    for (size_t block = 0; block < blocks(pass.terms); ++block) {
        load<6>(x + block * kTileBytes, 64);
        load<4>(panel + block * 2 * kTileBytes, 64);
        multiply_add<0, 4, 6>();
        load<7>(x + group_bytes + block * kTileBytes, 64);
        multiply_add<1, 4, 7>();
        load<5>(panel + block * 2 * kTileBytes + kTileBytes, 64);
        multiply_add<2, 5, 6>();
        multiply_add<3, 5, 7>();
        for (size_t i = 0; i < kFetchedLines; ++i, next_x += 64) {
            _mm_prefetch(next_x, _MM_HINT_T1);
            _mm_prefetch(next_x + group_bytes, _MM_HINT_T1);
        }
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

void store_sums(const Pass &pass, const uint8_t *sum, size_t output, size_t row) {
    for (size_t tile = 0; tile < 4; ++tile) {
        const size_t n = output + tile / 2 * kTileRows, r = row + tile % 2 * kTileRows;
        if (n < pass.output + pass.outputs && r < pass.task.rows) {
            store_turned(pass, sum + tile * kTileBytes, n, r);
        }
    }
}

void multiply_panels(const Pass &pass, Ahead ahead) {
    const size_t group_bytes = blocks(pass.task.depth) * kTileBytes;
    const auto *packed = static_cast<const uint8_t *>(pass.task.packed);
    const size_t panel_count = pass.panel_count();
    const size_t pairs = (pass.rows + 2 * kTileRows - 1) / (2 * kTileRows);
    const size_t fetched = (ahead.rows + pairs * panel_count - 1) / (pairs * panel_count);
    for (size_t pair = 0; pair < pairs; ++pair) {
        const size_t row = pass.row + pair * 2 * kTileRows;
        const uint8_t *x = packed + row / kTileRows * group_bytes + pass.k / kBlock * kTileBytes;
        for (size_t panel = 0; panel < panel_count; ++panel) {
            uint8_t *sum = pass.sums + (pair * kPanels + panel) * kSumBytes;
            ahead.fetch_rows(fetched);
            const auto *next_x = reinterpret_cast<const char *>(
                x + 2 * group_bytes + panel * blocks(pass.terms) * kFetchedLines * 64);
            multiply_tiles(pass, pass.panels + panel * kPanelBytes, x, group_bytes, next_x, sum);
            if (pass.last()) {
                store_sums(pass, sum, pass.output + panel * kPanelOutputs, row);
            }
        }
    }
}

// The weights of the pass after this one; the same rows again at the end of all.
Ahead next_weights(const Pass &pass) {
    const Matmul &task = pass.task;
    size_t k = pass.k + pass.terms, output = pass.output, outputs = pass.outputs;
    if (pass.last()) {
        k = 0;
        output += pass.outputs;
        outputs = smaller(task.outputs - output, kPanels * kPanelOutputs);
    }
    const size_t terms = smaller(task.depth - k, kPanelTerms);
    return {task.w + output * task.w_stride + k, task.w_stride, outputs, (terms + 31) / 32};
}

void multiply_rows(const Matmul &task, size_t row) {
    auto *scratch = static_cast<uint8_t *>(task.scratch);
    for (size_t output = 0; output < task.outputs; output += kPanels * kPanelOutputs) {
        for (size_t k = 0; k < task.depth; k += kPanelTerms) {
            const Pass pass{task,
                            output,
                            smaller(task.outputs - output, kPanels * kPanelOutputs),
                            row,
                            smaller(task.rows - row, kRows),
                            k,
                            smaller(task.depth - k, kPanelTerms),
                            scratch,
                            scratch + kPanels * kPanelBytes};
            pack_panels(pass);
            multiply_panels(pass, next_weights(pass));
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
    for (size_t row = 0; row < task.rows; row += kRows) {
        multiply_rows(task, row);
    }
}

} // namespace stasis::kernels::amx
