// Declares the functions by which each file of this folder enters its kernels into the module's
// table.
#pragma once

#include "runtime/kernels/device.h"

namespace stasis::kernels::device {

void add_rows(DeviceTable &table);      // rows.cu: embed, residual, softcap
void add_quant(DeviceTable &table);     // quant_rows.cu: quantize, quantized_bytes
void add_heads(DeviceTable &table);     // heads.cu: heads
void add_products(DeviceTable &table);  // product*.cu: measure, product, gated_product
void add_draw(DeviceTable &table);      // draw.cu: draw
void add_attention(DeviceTable &table); // attention*.cu: attend_*, receive
void add_pinned(DeviceTable &table);    // cublaslt.cu: pin_products

// Enqueues a product by the algorithm that `pin_products` chose for its shape. The module provides
// it, as it provides the grid.
void pinned_product(DeviceQueue *queue, const DeviceProduct &task);

} // namespace stasis::kernels::device
