// One table of compute kernels per instruction set. reference/ fills the first, which is the
// executable form of NUMERICS.md; every other table must equal it bit for bit. Each further table
// is a slower one with some entries replaced (table.cpp).
// A kernel computes on the calling thread, on a given range: callers split outputs, rows, heads and
// blocks over threads, never a reduction. Kernels allocate nothing, keep no state and require the
// floating-point environment of C2 (environment.h). bf16 values are raw uint16_t bits; f32 values
// are float.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/coded.h"
#include "runtime/kernels/strips.h"

namespace stasis::kernels {

// Positions of an attention block (C5), which are those of a KV page.
inline constexpr size_t kPagePositions = 64;

// Versions of the clauses; see ContractId in format/state/state.h.
inline constexpr uint32_t kContractCore = 1;
inline constexpr uint32_t kContractKv = 1;
inline constexpr uint32_t kContractSampling = 1;
inline constexpr uint32_t kContractRecurrent = 1; // of models that have such layers, as the next
inline constexpr uint32_t kContractExperts = 1;
inline constexpr uint32_t kContractEmbeddings = 1; // in no snapshot

inline constexpr float kDrawFloor = -28.0F; // C7: exp(kDrawFloor) * 2^40 is below 1

// Workspace of one thread, 64-byte aligned, for operands that a kernel packs.
inline constexpr size_t kScratchBytes = 1024 * 1024;

// Threads that share the packing of one matrix split its rows at multiples of this.
inline constexpr size_t kPackRows = 48;

// Packs the left operand of a matrix product in the order in which this table's `matmul` reads it.
// It is packed once, and then multiplied by any number of matrices and threads.
struct Pack {
    const uint16_t *x; // [rows][depth] bf16
    size_t x_stride;   // elements between rows of x
    size_t rows;
    size_t depth;
    void *packed; // packed_bytes(rows, depth), 64-byte aligned
};

// y[r][n] = sum over k of x[r][k] * w[n][k], by the block rule (C1).
struct Matmul {
    const void *packed; // x, packed by the same table with the same rows and depth
    const uint16_t *w; // [outputs][depth] bf16, row-major as in a checkpoint, aligned as a uint16_t
    size_t w_stride;   // elements between rows of w
    float *y;          // [rows][outputs] f32
    size_t y_stride;   // elements between rows of y
    size_t rows;
    size_t outputs;
    size_t depth;
    void *scratch; // kScratchBytes of the calling thread
};

// The same with coded weights (coded.h).
struct CodedMatmul {
    const void *packed;  // x, packed by the same table with the same rows and depth
    const CodedStrip *w; // of the outputs, 16 each
    float *y;            // [rows][outputs] f32
    size_t y_stride;     // elements between rows of y
    size_t rows;
    size_t outputs;
    size_t depth;
    void *scratch; // kScratchBytes of the calling thread
};

// Quantizes the left operand of products with integer weights: 8-bit integers and a scale for each
// group of `group` values (C8), in the order in which this table's `matmul_quantized` reads them.
struct Quantize {
    const uint16_t *x; // [rows][depth] bf16
    size_t x_stride;   // elements between rows of x
    size_t rows;
    size_t depth; // a multiple of group
    size_t group; // 32 or 256: elements of the weights' block
    void *packed; // quantized_bytes(rows, depth, group), 64-byte aligned
};

// y[r][n] = sum over k of x[r][k] * w[n][k], w in blocks of integers (C8).
struct QuantizedMatmul {
    const void *packed; // x, quantized by the same table with the same rows and depth
    Quant type;
    const uint8_t *w; // [outputs][depth / elements] blocks, in strips, of any alignment
    float *y;         // [rows][outputs] f32
    size_t y_stride;  // elements between rows of y
    size_t rows;
    size_t outputs;
    size_t depth;
    void *scratch; // kScratchBytes of the calling thread
};

// Computes one attention block of one KV head for some queries (C5): partial results m, l, o per
// row. For a row whose mask is 0 nothing is written, and the caller must not merge it.
struct AttentionBlock {
    const void *query;       // [rows][head_dim], packed by the same table with these sizes
    const uint64_t *visible; // [rows], bit s: slot s of the block is visible to the row
    const uint16_t *keys;    // [kPagePositions][head_dim] bf16
    const uint16_t *values;  // [kPagePositions][head_dim] bf16
    size_t rows;
    size_t head_dim;
    float scale;    // scores are multiplied by it
    float softcap;  // 0: none; else scores become softcap * tanh(score / softcap)
    float *maximum; // [rows] m_b; a zero is +0, as in all results
    float *sum;     // [rows] l_b
    float *output;  // [rows][head_dim] o_b
    // [rows][kPagePositions] p as bf16, +0 where not visible; null: not stored.
    uint16_t *weights;
    // Keys and values of the next block of the same thread, a hint; null: none.
    const uint16_t *next_keys;
    const uint16_t *next_values;
    void *scratch; // kScratchBytes of the calling thread
};

// Merges the partials of one block into the running results of some rows (C5). Blocks must come in
// ascending order.
struct AttentionMerge {
    size_t rows;
    size_t head_dim;
    const uint64_t *visible;    // [rows] of the block; a row whose mask is 0 stays as it is
    float *maximum;             // [rows] m
    float *sum;                 // [rows] l; 0: the row has seen nothing, and takes the partial over
    float *output;              // [rows][head_dim] o
    const float *block_maximum; // [rows] m_b
    const float *block_sum;     // [rows] l_b
    const float *block_output;  // [rows][head_dim] o_b
};

// y[r][c] = the sum over the taps of weights[t][c] * the input `taps - 1 - t` rows before r, from
// bias[c] on, or silu of it (C11): a causal convolution of each channel for itself. Callers split
// channels over threads.
struct Convolution {
    const float *x;       // [rows][x_stride] inputs
    const float *before;  // [taps - 1][width] inputs before the first row, the oldest first
    const float *weights; // [taps][width], the last tap is for the row itself
    float *y;             // [rows][y_stride]
    size_t x_stride;
    size_t y_stride;
    size_t width; // numbers between rows of `before` and `weights`
    size_t rows;
    size_t channels;
    size_t taps;
    bool plain = false;          // true: without silu
    const float *bias = nullptr; // [channels], null: none
};

// The gated delta rule of one value head, row after row (C11): each row changes the state and reads
// it. Columns do not depend on each other; callers split them and heads over threads. The selective
// scan has the same operands under other names. The state is key_dim rows of `columns` numbers.
struct DeltaRule {
    const float *query;  // [rows][qk_stride], key_dim numbers of each are used; of the scan C
    const float *key;    // the same; of the scan B
    const float *value;  // [rows][value_stride], `columns` numbers of each; of the scan x
    const float *decay;  // [rows][gate_stride], one number of each
    const float *beta;   // the same; of the scan the step
    const float *before; // the state that the first row finds: [key_dim][state_stride]
    float *between;      // where it may lie between rows, near the processor: [key_dim][columns]
    float *after;        // the state that the last row leaves, as `before`, or the same memory
    float *output;       // [rows][value_stride], `columns` numbers of each
    size_t qk_stride;
    size_t value_stride;
    size_t gate_stride;
    size_t state_stride;
    size_t rows; // at least 1
    size_t key_dim;
    size_t columns;
    float skip = 0.0F; // of the scan: D
    bool far = false;  // `after` is read again when no cache has it any more
};

// What a layer applies to its gate (C3). The numbers are part of the interface of devices.
enum class Activation : uint32_t { silu = 0, gelu_tanh = 1 };
inline constexpr Activation kActivations[] = {Activation::silu, Activation::gelu_tanh};

// y = bf16(activation(gate) * up).
using Gate = void (*)(const float *gate, const float *up, size_t n, uint16_t *y);

struct Table {
    const char *name; // "reference", "avx2", ...

    // Packs rows [begin, end); begin is a multiple of kPackRows, and end is one too or `rows`.
    void (*pack)(const Pack &task, size_t begin, size_t end);
    // Suffices for fewer rows and for lesser depths as well, as quantized_bytes does: one piece of
    // memory serves all products of a model.
    size_t (*packed_bytes)(size_t rows, size_t depth);
    void (*matmul)(const Matmul &task);
    // Both null: this table has neither, and weights are not coded for it.
    Coded (*code_strip)(const CodeStrip &task);
    void (*matmul_coded)(const CodedMatmul &task);

    // Quantizes rows [begin, end); begin is a multiple of kPackRows, and end is one too or `rows`.
    void (*quantize)(const Quantize &task, size_t begin, size_t end);
    size_t (*quantized_bytes)(size_t rows, size_t depth, size_t group);
    void (*matmul_quantized)(const QuantizedMatmul &task);
    // y = the weights of a row of published blocks, times scale (C8).
    void (*embed_quantized)(Quant type, const uint8_t *row, float scale, size_t n, float *y);

    // C4: y = x * (1 / sqrt(mean(x^2) + eps)) * weight. `weight` is 1 + w if the model requires it.
    void (*rms_norm)(const float *x, const float *weight, size_t n, float eps, float *y);
    // Rounds to bf16, nearest even, -0 stored as +0 (C6, C9).
    void (*round_bf16)(const float *x, size_t n, uint16_t *y);
    // Rotates pairs (x[i], x[i + n/2]) of one head in place; cosine and sine have n/2 entries.
    void (*rope)(float *x, const float *cosine, const float *sine, size_t n);

    void (*attention_block)(const AttentionBlock &task);
    void (*attention_merge)(const AttentionMerge &task);
    // y = bf16(o / l) of one row.
    void (*attention_finish)(const float *o, float l, size_t head_dim, uint16_t *y);

    // C11: y = (x * (1 / sqrt(sum(x^2) + eps))) * factor
    void (*l2_norm)(const float *x, size_t n, float eps, float factor, float *y);
    void (*convolve)(const Convolution &task);
    // For each of n heads: decay = exp(rate * softplus(a + bias)), beta = sigmoid(b).
    void (*delta_gates)(const float *a, const float *b, const float *rate, const float *bias,
                        size_t n, float *decay, float *beta);
    void (*delta_rule)(const DeltaRule &task);
    // For each of n heads: step = softplus(dt + bias), at least `least` and at most `most`, and
    // decay = exp(rate * step). `step` may be dt.
    void (*scan_gates)(const float *dt, const float *rate, const float *bias, float least,
                       float most, size_t n, float *decay, float *step);
    void (*selective_scan)(const DeltaRule &task);
    // y = (gate * sigmoid(gate)) * x, in f32; y may be either.
    void (*silu_multiply)(const float *gate, const float *x, size_t n, float *y);
    void (*multiply)(const float *a, const float *b, size_t n, float *y); // y = a * b; may be a
    // y = bf16((o / l) * sigmoid(gate)) of one row and head.
    void (*attention_finish_gated)(const float *o, float l, const float *gate, size_t head_dim,
                                   uint16_t *y);

    // C12: y = exp(x - largest x) / their sum. n is at least 1; y may be x.
    void (*softmax)(const float *x, size_t n, float *y);
    void (*add_scaled)(const float *x, float factor, size_t n, float *y); // y = fma(x, factor, y)
    void (*sigmoid)(const float *x, size_t n, float *y);                  // C3; y may be x

    Gate silu_gate;
    Gate gelu_gate;
    // C3: gpt-oss's, of values within the limit.
    void (*limited_gate)(const float *gate, const float *up, size_t n, float limit, uint16_t *y);

    void (*add)(const float *x, size_t n, float *y);                       // y += x
    void (*embed)(const uint16_t *row, float scale, size_t n, float *y);   // y = f32(row) * scale
    void (*embed_wide)(const float *row, float scale, size_t n, float *y); // y = row * scale
    void (*softcap)(float *x, size_t n, float cap); // x = cap * tanh(x / cap)

    // C7. Returns the index of the first of the largest values, none of them NaN; n is at least 1.
    size_t (*first_largest)(const float *x, size_t n);
    // C7, for each of n logits: scaled = logit / temperature, within the finite range, and power =
    // exp(scaled - best); the power is 0 where that is below kDrawFloor or the logit is -infinity.
    void (*draw_powers)(const float *logits, size_t n, float temperature, float best, float *scaled,
                        float *powers);

    // Returns the index of the first value that is not finite once rounded to bf16 (C9); n if there
    // is none.
    size_t (*find_nonfinite)(const float *x, size_t n);
};

// Returns the table entry of an activation.
inline Gate gate_of(const Table &table, Activation activation) {
    switch (activation) {
    case Activation::silu:
        return table.silu_gate;
    case Activation::gelu_tanh:
        return table.gelu_gate;
    }
    return nullptr;
}

const Table &reference_table();
// Returns the names of this build's tables, the fastest first, "reference" last; ends with null.
const char *const *table_names();
// Returns the table of that name if this machine can run it, else null, as for names that this
// build does not have.
const Table *find_table(const char *name);
// Returns the fastest table that this machine can run.
const Table &best_table();

} // namespace stasis::kernels
