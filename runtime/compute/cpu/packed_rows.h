// Rows in the forms that products with weights read.
#pragma once

namespace stasis {

// A form that no matrix reads is null.
struct PackedRows {
    void *plain = nullptr;                   // of bf16, in the table's order
    void *quantized[2] = {nullptr, nullptr}; // by groups of 32 and of 256 (C8)
};

} // namespace stasis
