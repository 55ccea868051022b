// See products.h.
#include "runtime/compute/cpu/products.h"

#include <algorithm>

#include "runtime/compute/cpu/scratch.h"
#include "runtime/compute/network.h"

namespace stasis {

void pack(const Pass &pass, const uint16_t *x, size_t rows,
          std::initializer_list<const Matrix *> matrices) {
    const Network &network = pass.network;
    const CpuScratch &work = *pass.cpu;
    const size_t depth = (*matrices.begin())->columns;
    QuantGroups groups;
    bool plain = false;
    for (const Matrix *matrix : matrices) {
        groups.add(*matrix);
        plain = plain || matrix->data != nullptr;
    }
    if (plain) {
        const kernels::Pack task{x, depth, rows, depth, work.packed};
        network.threads->run(rows, kernels::kPackRows, [&](size_t begin, size_t end) {
            network.kernels->pack(task, begin, end);
        });
    }
    for (const size_t group : {32, 256}) {
        if (group == 32 ? groups.by_32 : groups.by_256) {
            const kernels::Quantize task{x,     depth, rows,
                                         depth, group, work.quantized[group == 32 ? 0 : 1]};
            network.threads->run(rows, kernels::kPackRows, [&](size_t begin, size_t end) {
                network.kernels->quantize(task, begin, end);
            });
        }
    }
}

namespace {

// y [rows][count] = outputs begin .. begin + count - 1 of the product with the packed rows, plus
// bias.
void multiply(const Pass &pass, const Matrix &w, size_t rows, size_t begin, size_t count,
              size_t thread, float *y, size_t y_stride) {
    const kernels::Table &table = *pass.network.kernels;
    const CpuScratch &work = *pass.cpu;
    void *scratch = work.scratch_of(thread);
    if (w.data != nullptr) {
        table.matmul({work.packed, w.data + begin * w.columns, w.columns, y, y_stride, rows, count,
                      w.columns, scratch});
    } else {
        const uint8_t *strip =
            w.strips + begin / kernels::kStripOutputs * kernels::strip_bytes(w.quant, w.columns);
        const size_t group = kernels::quant_block(w.quant).elements;
        table.matmul_quantized({work.quantized[group == 32 ? 0 : 1], w.quant, strip, y, y_stride,
                                rows, count, w.columns, scratch});
    }
    if (w.bias != nullptr) {
        for (size_t row = 0; row < rows; ++row) {
            table.add(w.bias + begin, count, y + row * y_stride);
        }
    }
}

// How the outputs of a product are cut into items for the threads, in a number that they share
// evenly: at multiples of what the tables compute side by side, kProductOutputs at most in each.
struct Items {
    static constexpr size_t kUnit = 32;
    static_assert(kUnit % kernels::kStripOutputs == 0 && kProductOutputs % (4 * kUnit) == 0);
    size_t outputs, units, count;

    Items(size_t threads, size_t outputs_, size_t rows)
        : outputs(outputs_), units((outputs + kUnit - 1) / kUnit) {
        constexpr size_t kSmallItemRows = 64; // bound by reading, and done soon: smaller items
        const size_t most = (rows > kSmallItemRows ? kProductOutputs : kProductOutputs / 4) / kUnit;
        count = threads * ((units + threads * most - 1) / (threads * most));
    }

    size_t begin(size_t item) const { return std::min(units * item / count * kUnit, outputs); }
};

} // namespace

void multiply_packed(const Pass &pass, std::initializer_list<Product> products, size_t rows) {
    Threads &threads = *pass.network.threads;
    size_t total = 0;
    for (const Product &product : products) {
        total += Items(threads.count(), product.w.rows, rows).count;
    }
    threads.run(total, 1, [&](size_t item, size_t, size_t thread) {
        for (const Product &product : products) {
            const Items items(threads.count(), product.w.rows, rows);
            if (item < items.count) {
                const size_t begin = items.begin(item), end = items.begin(item + 1);
                multiply(pass, product.w, rows, begin, end - begin, thread, product.y + begin,
                         product.w.rows);
                return;
            }
            item -= items.count;
        }
    });
}

void multiply_gated(const Pass &pass, const Mlp &weights, size_t rows, uint16_t *y) {
    const Network &network = pass.network;
    const CpuScratch &work = *pass.cpu;
    const size_t inner = network.config.intermediate;
    const Items items(network.threads->count(), inner, rows);
    const kernels::Gate activate = kernels::gate_of(*network.kernels, network.config.activation);
    network.threads->run(items.count, 1, [&](size_t item, size_t, size_t thread) {
        const size_t begin = items.begin(item), count = items.begin(item + 1) - begin;
        float *gate = work.gate_of(thread), *up = work.up_of(thread);
        multiply(pass, weights.gate, rows, begin, count, thread, gate, count);
        multiply(pass, weights.up, rows, begin, count, thread, up, count);
        for (size_t row = 0; row < rows; ++row) {
            activate(gate + row * count, up + row * count, count, y + row * inner + begin);
        }
    });
}

} // namespace stasis
