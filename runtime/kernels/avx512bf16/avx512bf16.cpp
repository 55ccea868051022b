// Enters what this instruction set computes faster.
#include "runtime/kernels/avx512bf16/deep_row.h"
#include "runtime/kernels/avx512bf16/rows.h"
#include "runtime/kernels/generic/panels/attention.h"
#include "runtime/kernels/generic/panels/kernels.h"
#include "runtime/kernels/generic/panels/product.h"

namespace stasis::kernels::avx512bf16 {

namespace {

void multiply(const Matmul &task) {
    if (task.rows == 1 && is_deep(task.depth)) {
        multiply_deep_row(task);
    } else if (fill_lanes(task.rows)) {
        multiply_by_lanes(task);
    } else {
        matmul<Avx512Bf16>(task);
    }
}

} // namespace

void add_kernels(Table &table) {
    add_panels<Avx512Bf16>(table);
    table.matmul = multiply;
    add_coded(table);
}

} // namespace stasis::kernels::avx512bf16
