// Products of rows with weights, split over threads by outputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "runtime/compute/pass.h"
#include "runtime/model/weights.h"

namespace stasis {

// A matrix and where its product with the packed rows goes.
struct Product {
    const Matrix &w;
    float *y; // [rows][w.rows]
};

// Puts x [rows][depth] into the scratch's `packed` and `quantized`, as far as the matrices call for
// them. Expects all matrices to have that depth.
void pack(const Pass &pass, const uint16_t *x, size_t rows,
          std::initializer_list<const Matrix *> matrices);

// Products of the packed rows with several matrices.
void multiply_packed(const Pass &pass, std::initializer_list<Product> products, size_t rows);

// y [rows][I] bf16 = activation(gate) * up of the packed rows.
void multiply_gated(const Pass &pass, const Mlp &weights, size_t rows, uint16_t *y);

} // namespace stasis
