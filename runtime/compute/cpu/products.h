// Products of rows with weights, split over threads by outputs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "runtime/compute/cpu/scratch.h"
#include "runtime/compute/pass.h"
#include "runtime/kernels/strips.h"
#include "runtime/model/weights.h"

namespace stasis {

// A matrix and where its product with the packed rows goes.
struct Product {
    const Matrix &w;
    float *y; // [rows][w.rows]
};

// How the outputs of a product are cut into items for the threads, in a number that they share
// evenly: at multiples of what the tables compute side by side, kProductOutputs at most in each.
struct Items {
    static constexpr size_t kUnit = 32;
    static_assert(kUnit % kernels::kStripOutputs == 0 && kUnit % kernels::kCodedOutputs == 0 &&
                  kProductOutputs % (4 * kUnit) == 0);
    size_t outputs, units, count;

    Items(size_t threads, size_t outputs_, size_t rows)
        : outputs(outputs_), units((outputs + kUnit - 1) / kUnit) {
        constexpr size_t kSmallItemRows = 64; // bound by reading, and done soon: smaller items
        const size_t most = (rows > kSmallItemRows ? kProductOutputs : kProductOutputs / 4) / kUnit;
        count = threads * ((units + threads * most - 1) / (threads * most));
    }

    size_t begin(size_t item) const { return std::min(units * item / count * kUnit, outputs); }
};

// The forms of rows that products with some matrices read.
struct PackedForms {
    bool plain = false;
    QuantGroups groups;

    PackedForms(std::initializer_list<const Matrix *> matrices);
};

// Puts x [rows][depth] into the scratch's `packed`, as far as the matrices call for it. Expects all
// matrices to have that depth.
void pack(const Pass &pass, const uint16_t *x, size_t rows,
          std::initializer_list<const Matrix *> matrices);

// Packs x [rows][depth] on the calling thread.
void pack_rows(const kernels::Table &table, const uint16_t *x, size_t depth, size_t rows,
               const PackedForms &forms, const PackedRows &into);

// Products of the packed rows with several matrices.
void multiply_packed(const Pass &pass, std::initializer_list<Product> products, size_t rows);

// y [rows][count] = outputs begin .. begin + count - 1 of the product with packed rows, plus bias,
// on the calling thread.
void multiply(const Pass &pass, const Matrix &w, const PackedRows &packed, size_t rows,
              size_t begin, size_t count, size_t thread, float *y, size_t y_stride);

// y [rows][I] bf16 = activation(gate) * up of the packed rows.
void multiply_gated(const Pass &pass, const Mlp &weights, size_t rows, uint16_t *y);
// The same for outputs begin .. begin + count - 1, at most kProductOutputs, on the calling thread.
void multiply_gated(const Pass &pass, const Mlp &weights, const PackedRows &packed, size_t rows,
                    size_t begin, size_t count, size_t thread, uint16_t *y);

} // namespace stasis
