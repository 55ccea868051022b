// The entries of a kernel table, listed once for the tests: all of them by type, and those that
// work on n elements as calls, which any table can be asked for, the naive restatement too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/kernels/table.h"

namespace entries {

using stasis::kernels::Table;

template <auto... entries> struct List { static constexpr size_t kCount = sizeof...(entries); };

// What every table has, in the order of Table.
using All =
    List<&Table::pack, &Table::packed_bytes, &Table::matmul, &Table::quantize,
         &Table::quantized_bytes, &Table::matmul_quantized, &Table::embed_quantized,
         &Table::rms_norm, &Table::round_bf16, &Table::rope, &Table::attention_block,
         &Table::attention_merge, &Table::attention_finish, &Table::l2_norm, &Table::convolve,
         &Table::delta_gates, &Table::delta_rule, &Table::scan_gates, &Table::selective_scan,
         &Table::silu_multiply, &Table::multiply, &Table::attention_finish_gated, &Table::softmax,
         &Table::add_scaled, &Table::sigmoid, &Table::silu_gate, &Table::gelu_gate,
         &Table::limited_gate, &Table::add, &Table::embed, &Table::embed_wide, &Table::softcap,
         &Table::first_largest, &Table::draw_powers, &Table::find_nonfinite>;
// What is null in some.
using OfSome = List<&Table::code_strip, &Table::matmul_coded>;
static_assert(sizeof(Table) == (1 + All::kCount + OfSome::kCount) * sizeof(void *),
              "the name and every entry of the lists above");

// What calls work on, wherever a test placed it.
struct Operands {
    size_t n;
    const float *x, *z, *weight; // [n]
    const float *cosine, *sine;  // [n / 2]
    const uint16_t *row;         // [n] bf16
    float *y;                    // [n] a result; x before the call
    uint16_t *bits;              // [n] a result
    float m = -1.5F, l = 7.0F;   // results
    size_t found = 0;            // a result
};

// Merges one row's partial (m_b, l_b, o_b) into (m, l, o).
inline void merge(decltype(Table::attention_merge) entry, float &m, float &l, float *o, float m_b,
                  float l_b, const float *o_b, size_t head_dim) {
    const uint64_t visible = 1;
    entry({1, head_dim, &visible, &m, &l, o, &m_b, &l_b, o_b});
}

struct Call {
    const char *name;
    size_t element_bytes; // read and written for each of n
    void (*of)(const Table &table, Operands &o);
};

inline constexpr Call kCalls[] = {
    {"rms_norm", 12,
     [](const Table &t, Operands &o) { t.rms_norm(o.x, o.weight, o.n, 1e-6F, o.y); }},
    {"rms_norm, in place", 12,
     [](const Table &t, Operands &o) { t.rms_norm(o.y, o.weight, o.n, 1e-6F, o.y); }},
    {"round_bf16", 6, [](const Table &t, Operands &o) { t.round_bf16(o.x, o.n, o.bits); }},
    {"rope", 12, [](const Table &t, Operands &o) { t.rope(o.y, o.cosine, o.sine, o.n / 2 * 2); }},
    {"attention_merge", 12,
     [](const Table &t, Operands &o) {
         merge(t.attention_merge, o.m, o.l, o.y, 0.25F, 3.0F, o.z, o.n);
     }},
    {"attention_finish", 6,
     [](const Table &t, Operands &o) { t.attention_finish(o.x, 3.0F, o.n, o.bits); }},
    {"l2_norm", 12, [](const Table &t, Operands &o) { t.l2_norm(o.x, o.n, 1e-6F, 0.125F, o.y); }},
    {"l2_norm, in place", 12,
     [](const Table &t, Operands &o) { t.l2_norm(o.y, o.n, 1e-6F, 0.3F, o.y); }},
    {"attention_finish_gated", 10,
     [](const Table &t, Operands &o) { t.attention_finish_gated(o.x, 3.0F, o.z, o.n, o.bits); }},
    {"softmax", 12, [](const Table &t, Operands &o) { t.softmax(o.x, o.n, o.y); }},
    {"softmax, in place", 12, [](const Table &t, Operands &o) { t.softmax(o.y, o.n, o.y); }},
    {"add_scaled", 12, [](const Table &t, Operands &o) { t.add_scaled(o.z, 0.3F, o.n, o.y); }},
    {"sigmoid", 12, [](const Table &t, Operands &o) { t.sigmoid(o.x, o.n, o.y); }},
    {"silu_gate", 10, [](const Table &t, Operands &o) { t.silu_gate(o.x, o.z, o.n, o.bits); }},
    {"gelu_gate", 10, [](const Table &t, Operands &o) { t.gelu_gate(o.x, o.z, o.n, o.bits); }},
    {"limited_gate", 10,
     [](const Table &t, Operands &o) {
         t.limited_gate(o.x, o.z, o.n, o.n % 2 == 0 ? 7.0F : 0.5F, o.bits);
     }},
    {"silu_multiply", 12, [](const Table &t, Operands &o) { t.silu_multiply(o.x, o.z, o.n, o.y); }},
    {"silu_multiply, in place", 12,
     [](const Table &t, Operands &o) { t.silu_multiply(o.y, o.z, o.n, o.y); }},
    {"multiply", 12, [](const Table &t, Operands &o) { t.multiply(o.x, o.z, o.n, o.y); }},
    {"add", 12, [](const Table &t, Operands &o) { t.add(o.z, o.n, o.y); }},
    {"embed", 6, [](const Table &t, Operands &o) { t.embed(o.row, 11.3125F, o.n, o.y); }},
    {"embed_wide", 8, [](const Table &t, Operands &o) { t.embed_wide(o.x, 11.3125F, o.n, o.y); }},
    {"softcap", 8,
     [](const Table &t, Operands &o) { t.softcap(o.y, o.n, o.n % 2 == 0 ? 30.0F : 50.0F); }},
    {"draw_powers, scaled", 8,
     [](const Table &t, Operands &o) {
         std::vector<float> powers(o.n);
         t.draw_powers(o.x, o.n, 0.7F, 1.5F, o.y, powers.data());
     }},
    {"draw_powers, powers", 8,
     [](const Table &t, Operands &o) {
         std::vector<float> scaled(o.n);
         t.draw_powers(o.x, o.n, 1.3F, 20.0F, scaled.data(), o.y);
     }},
    {"find_nonfinite", 4,
     [](const Table &t, Operands &o) { o.found = t.find_nonfinite(o.x, o.n); }},
};

} // namespace entries
