// Products with coded weights (coded.h). A vector of them is a row of a tile: blocks are unpacked
// into memory that stays in the first level of caches, and tiles are loaded from there.
#include "runtime/kernels/amx/kernels.h"
#include "runtime/kernels/amx/panels.h"
#include "runtime/kernels/amx/stream.h"
#include "runtime/kernels/generic/panels/code.h"

namespace stasis::kernels::amx {

namespace {

using Blocks = CodedBlocks<Avx512>;

static_assert(kCodedOutputs == kTileRows && kCodedBlockWeights * sizeof(uint16_t) == kTileBytes);

// Rows of a strip as they lie.
class PlainRows {
  public:
    PlainRows(const CodeStrip &task, size_t) : task_(task) {}

    // The block at k, +0 where no weight is.
    void block(size_t k, uint16_t (*halves)[kBlock]) const {
        const size_t terms = smaller(task_.depth - k, kBlock);
        if (terms < kBlock || task_.outputs < kCodedOutputs) {
            __builtin_memset(halves, 0, kCodedOutputs * sizeof *halves);
        }
        for (size_t n = 0; n < task_.outputs; ++n) {
            const uint16_t *row = task_.rows + n * task_.depth + k;
            if (terms == kBlock) { // nearly always
                __builtin_memcpy(halves[n], row, sizeof halves[n]);
            } else {
                __builtin_memcpy(halves[n], row, terms * sizeof *row);
            }
        }
    }

    bool is_weight(size_t k, size_t vector, size_t half) const {
        return vector < task_.outputs && k + half < task_.depth;
    }

  private:
    const CodeStrip &task_;
};

// The strip from `output` on.
struct UnpackedStrip {
    const CodedMatmul &task;
    size_t output;

    // Some blocks are unpacked before the first of them is multiplied: a tile load that meets
    // stores still on their way into the cache may have to wait for them (not measured).
    template <typename Multiply>
    [[gnu::always_inline]] void each_block(const Multiply &multiply) const {
        constexpr size_t kPiece = 8;
        alignas(64) uint16_t tiles[kPiece][kCodedBlockWeights];
        Blocks blocks(task, output, 0);
        for (size_t k = 0; k < task.depth; k += kPiece * kBlock) {
            const size_t count = smaller(kPiece, blocks_in(task.depth - k));
            for (size_t i = 0; i < count; ++i) {
                blocks.fetch();
                blocks.store(k + i * kBlock, tiles[i]);
            }
            for (size_t i = 0; i < count; ++i) {
                load<4>(tiles[i], 64);
                multiply();
            }
        }
    }
};

// Fetches the same blocks of the strip after each one.
void pack_panel(const Pass<CodedMatmul> &pass) {
    if (pass.outputs <= kTileRows) {
        __builtin_memset(pass.panel, 0, kPanelBytes);
    }
    const size_t ahead = coded_strip_bytes(pass.task.depth);
    for (size_t n = 0; n < pass.outputs; n += kTileRows) {
        Blocks blocks(pass.task, pass.output + n, pass.k / kBlock);
        uint8_t *to = pass.panel + n / kTileRows * kTileBytes;
        for (size_t k = pass.k; k < pass.k + pass.terms; k += kBlock, to += 2 * kTileBytes) {
            blocks.fetch(ahead);
            blocks.store(k, reinterpret_cast<uint16_t *>(to));
        }
    }
}

} // namespace

Coded code_strip(const CodeStrip &task) {
    return code_strip<Avx512, PlainRows>(task);
}

void matmul_coded(const CodedMatmul &task) {
    if (task.rows <= kStreamedRows) {
        stream(task, [&](size_t output, size_t) { return UnpackedStrip{task, output}; });
    } else {
        multiply_many(task, pack_panel);
    }
}

} // namespace stasis::kernels::amx
