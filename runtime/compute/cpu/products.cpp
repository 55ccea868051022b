// See products.h.
#include "runtime/compute/cpu/products.h"

#include <cassert>

#include "runtime/compute/network.h"

namespace stasis {

PackedForms::PackedForms(std::initializer_list<const Matrix *> matrices) {
    for (const Matrix *matrix : matrices) {
        groups.add(*matrix);
        plain = plain || matrix->data != nullptr || matrix->coded != nullptr;
    }
}

namespace {

// Packs rows [begin, end) of x [rows][depth].
struct PackTask {
    const kernels::Table &table;
    const uint16_t *x;
    size_t depth, rows;
    const PackedForms &forms;
    const PackedRows &into;

    void operator()(size_t begin, size_t end) const {
        if (forms.plain) {
            table.pack({x, depth, rows, depth, into.plain}, begin, end);
        }
        if (forms.groups.by_32) {
            table.quantize({x, depth, rows, depth, 32, into.quantized[0]}, begin, end);
        }
        if (forms.groups.by_256) {
            table.quantize({x, depth, rows, depth, 256, into.quantized[1]}, begin, end);
        }
    }
};

} // namespace

void pack(const Pass &pass, const uint16_t *x, size_t rows,
          std::initializer_list<const Matrix *> matrices) {
    const Network &network = pass.network;
    const PackedForms forms(matrices);
    const size_t depth = (*matrices.begin())->columns;
    network.threads->run(rows, kernels::kPackRows,
                         PackTask{*network.kernels, x, depth, rows, forms, pass.cpu->packed});
}

void pack_rows(const kernels::Table &table, const uint16_t *x, size_t depth, size_t rows,
               const PackedForms &forms, const PackedRows &into) {
    PackTask{table, x, depth, rows, forms, into}(0, rows);
}

void multiply(const Pass &pass, const Matrix &w, const PackedRows &packed, size_t rows,
              size_t begin, size_t count, size_t thread, float *y, size_t y_stride) {
    if (count == 0) { // an item of a matrix that has fewer units than there are threads
        return;
    }
    const kernels::Table &table = *pass.network.kernels;
    void *scratch = pass.cpu->scratch_of(thread);
    if (w.coded != nullptr) {
        table.matmul_coded({packed.plain, w.coded + begin / kernels::kCodedOutputs, y, y_stride,
                            rows, count, w.columns, scratch});
    } else if (w.data != nullptr) {
        table.matmul({packed.plain, w.data + begin * w.columns, w.columns, y, y_stride, rows, count,
                      w.columns, scratch});
    } else {
        const uint8_t *strip =
            w.strips + begin / kernels::kStripOutputs * kernels::strip_bytes(w.quant, w.columns);
        const size_t group = kernels::quant_block(w.quant).elements;
        table.matmul_quantized({packed.quantized[group == 32 ? 0 : 1], w.quant, strip, y, y_stride,
                                rows, count, w.columns, scratch});
    }
    if (w.bias != nullptr) {
        for (size_t row = 0; row < rows; ++row) {
            table.add(w.bias + begin, count, y + row * y_stride);
        }
    }
}

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
                multiply(pass, product.w, pass.cpu->packed, rows, begin, end - begin, thread,
                         product.y + begin, product.w.rows);
                return;
            }
            item -= items.count;
        }
    });
}

void multiply_gated(const Pass &pass, const Mlp &weights, const PackedRows &packed, size_t rows,
                    size_t begin, size_t count, size_t thread, uint16_t *y) {
    assert(count <= kProductOutputs && rows <= pass.cpu->rows);
    const Network &network = pass.network;
    const kernels::Gate activate = kernels::gate_of(*network.kernels, network.config.activation);
    float *gate = pass.cpu->gate_of(thread), *up = pass.cpu->up_of(thread);
    multiply(pass, weights.gate, packed, rows, begin, count, thread, gate, count);
    multiply(pass, weights.up, packed, rows, begin, count, thread, up, count);
    const float limit = network.config.gate_limit;
    for (size_t row = 0; row < rows; ++row) {
        const float *g = gate + row * count, *u = up + row * count;
        uint16_t *to = y + row * weights.gate.rows + begin;
        if (limit != 0.0F) {
            network.kernels->limited_gate(g, u, count, limit, to);
        } else {
            activate(g, u, count, to);
        }
    }
}

void multiply_gated(const Pass &pass, const Mlp &weights, size_t rows, uint16_t *y) {
    Threads &threads = *pass.network.threads;
    const Items items(threads.count(), weights.gate.rows, rows);
    threads.run(items.count, 1, [&](size_t item, size_t, size_t thread) {
        const size_t begin = items.begin(item), count = items.begin(item + 1) - begin;
        multiply_gated(pass, weights, pass.cpu->packed, rows, begin, count, thread, y);
    });
}

} // namespace stasis
