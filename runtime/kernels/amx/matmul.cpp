// Matrix products by the block rule (C1): a tile step computes one block of it for 16 x 16 outputs.
// Weights are the left operand, row-major as they lie.
#include "runtime/kernels/amx/kernels.h"
#include "runtime/kernels/amx/panels.h"
#include "runtime/kernels/amx/stream.h"

namespace stasis::kernels::amx {

namespace {

constexpr size_t kAhead = 256; // terms that a row of weights is fetched ahead of its use

// Up to 16 outputs; `next` are the weights that come after them.
struct MappedStrip {
    const Matmul &task;
    const uint16_t *w, *next;
    size_t outputs;

    template <typename Multiply>
    [[gnu::always_inline]] void each_block(const Multiply &multiply) const {
        const size_t whole = task.depth / kBlock * kBlock;
        for (size_t k = 0; k < whole; k += kBlock) {
            load_weights(k);
            multiply();
        }
        if (whole < task.depth) {
            load_tail(whole);
            multiply();
        }
    }

    // The weights of the block at k, those further on fetched.
    [[gnu::always_inline]] void load_weights(size_t k) const {
        const size_t ahead = k + kAhead;
        const uint16_t *far = ahead < task.depth ? w + ahead : next + (ahead - task.depth);
        for (size_t n = 0; n < outputs; ++n) {
            fetch_near(far + n * task.w_stride);
        }
        load<4>(w + k, task.w_stride * sizeof(uint16_t));
    }

    // The last block of a row that ends within it, +0 beyond.
    void load_tail(size_t k) const {
        alignas(64) uint16_t tail[kTileRows][kBlock] = {};
        for (size_t n = 0; n < outputs; ++n) {
            __builtin_memcpy(tail[n], w + n * task.w_stride + k,
                             (task.depth - k) * sizeof(uint16_t));
        }
        load<4>(tail, 64);
    }
};

// One row of the panel, `terms` of which exist.
[[gnu::always_inline]] inline void pack_row(const uint16_t *w, size_t terms, uint8_t *to) {
    for (size_t k = 0; k < terms; k += kBlock, to += 2 * kTileBytes) {
        const size_t left = smaller(terms - k, kBlock);
        _mm512_store_si512(to, _mm512_maskz_loadu_epi16(
                                   static_cast<__mmask32>(~uint64_t{0} >> (64 - left)), w + k));
    }
}

void pack_panel(const Pass<Matmul> &pass) {
    if (pass.outputs < kPanelOutputs) {
        __builtin_memset(pass.panel, 0, kPanelBytes);
    }
    constexpr size_t kRowsAhead = 4; // nothing else is on its way from memory now
    const uint16_t *w = pass.task.w + pass.output * pass.task.w_stride + pass.k;
    for (size_t n = 0; n < pass.outputs; ++n, w += pass.task.w_stride) {
        for (size_t k = 0; k < kPanelTerms; k += kBlock) {
            fetch_near(w + kRowsAhead * pass.task.w_stride + k);
        }
        uint8_t *to = pass.panel + n / kTileRows * kTileBytes + n % kTileRows * 64;
        if (pass.terms == kPanelTerms) { // nearly always: no masks then
            pack_row(w, kPanelTerms, to);
        } else {
            pack_row(w, pass.terms, to);
        }
    }
}

} // namespace

void matmul(const Matmul &task) {
    if (task.rows <= kStreamedRows) {
        stream(task, [&](size_t output, size_t outputs) {
            const uint16_t *w = task.w + output * task.w_stride;
            return MappedStrip{task, w, w + outputs * task.w_stride, outputs};
        });
    } else {
        multiply_many(task, pack_panel);
    }
}

} // namespace stasis::kernels::amx
