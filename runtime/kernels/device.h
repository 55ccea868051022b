// The interface of a module for a device: its memory, queues of work, and the contract's kernels. A
// module is a library of its own that is opened when a model asks for its device. It exports one
// table of plain functions on plain data, and knows neither models nor sessions.
// No function throws. Enqueued work runs in order. `finish` reports its errors, after which the
// queue can be used again unless the device is lost. Every pointer in a task points to device
// memory unless its comment says "host"; tasks themselves are read before the call returns. bf16
// values are raw uint16_t bits; f32 values are float. Every result equals the reference kernels'
// bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/table.h"

namespace stasis::kernels {

// The version of this header. A module states the version that it was built for.
inline constexpr uint32_t kDeviceVersion = 3;

// An error, in the driver's or the module's words.
struct DeviceError {
    enum Kind : int32_t { none, unavailable, no_memory, lost, failed };
    int32_t kind = none; // unavailable: no driver, or no such device
    char message[252] = {};
};

struct DeviceInfo {
    char name[128];
    // Versions of the driver, and of the runtime that the module was built with.
    char driver[32];
    char runtime[32];
    uint32_t major, minor; // compute capability
    uint32_t multiprocessors;
    uint64_t memory_bytes, free_bytes;
};

// Limits of the attention kernels: query heads of one KV head, elements of a head.
inline constexpr size_t kDeviceGroupHeadsMax = 16, kDeviceHeadDimMax = 256;

struct Device;      // one opened device
struct DeviceQueue; // work in order; one host thread at a time
struct DeviceGraph; // recorded work

// Reports whether devices multiply with a type of blocks.
constexpr bool device_multiplies(Quant type) {
    return type <= Quant::q6_k;
}

// A weight matrix, of bf16 values or in blocks of integers (C8). `least` is used for C2: see
// cuda/arithmetic.h.
struct DeviceMatrix {
    const uint16_t *w = nullptr;     // [outputs][depth] bf16, row-major, 16-byte aligned
    const uint32_t *least = nullptr; // [outputs] by `measure`
    const float *bias = nullptr;     // [outputs] f32; null: none
    size_t outputs = 0;
    size_t depth = 0;
    const uint8_t *strips = nullptr; // replaces w and least: as in strips.h, 16-byte aligned
    Quant quant = Quant::q8_0;       // of the integers
};

// Quantizes rows to 8-bit integers in groups (C8), in the order in which this module's products
// read them.
struct DeviceQuantize {
    const uint16_t *x = nullptr; // [rows][depth] bf16, 16-byte aligned
    size_t rows = 0;
    size_t depth = 0;          // a multiple of group
    size_t group = 0;          // 32 or 256: elements of the weights' block
    void *quantized = nullptr; // quantized_bytes(rows, depth, group), 16-byte aligned
};

// y[i][r][n] = sum over k of x[r][k] * w[i][n][k] by the block rule (C1), for matrices in blocks of
// integers by C8, plus the bias.
struct DeviceProduct {
    const uint16_t *x = nullptr; // [rows][depth] bf16, 16-byte aligned
    size_t rows = 0;
    size_t count = 0; // matrices, 1 to 3, all of one depth
    DeviceMatrix w[3];
    float *y[3] = {}; // [rows][w[i].outputs] f32
    // Use the algorithms of `pin_products`; y and biases are 16-byte aligned then.
    bool pinned = false;
    // x after `quantize`, in groups of 32 and of 256; null: no matrix has such blocks.
    const void *quantized[2] = {};
};

// The shape of a product whose algorithm is chosen in advance.
struct DeviceShape {
    size_t rows, outputs, depth;
    bool bias;
    bool operator==(const DeviceShape &) const = default;
};
inline constexpr size_t kDeviceIdBytes = 192; // of `pin_products`, including the final NUL

// y = bf16(activation(gate) * up) of the products of x with both matrices (C3, activations).
struct DeviceGatedProduct {
    const uint16_t *x = nullptr; // [rows][depth] bf16, 16-byte aligned
    size_t rows = 0;
    DeviceMatrix gate, up;
    Activation activation = Activation::silu;
    float *gate_y = nullptr;       // [rows][outputs] f32, workspace
    float *up_y = nullptr;         // the same
    uint16_t *y = nullptr;         // [rows][outputs] bf16
    bool pinned = false;           // both products use the algorithms of `pin_products`
    const void *quantized[2] = {}; // as in DeviceProduct
};

// stream += wide, through a norm of its own if there is one; then narrow = bf16(norm(stream)).
struct DeviceResidual {
    size_t rows = 0;
    size_t hidden = 0;
    float eps = 0.0F;
    const float *wide = nullptr;      // [rows][hidden] f32; null: nothing is added
    const float *post_norm = nullptr; // [hidden] f32; null: none
    float *stream = nullptr;          // [rows][hidden] f32
    const float *norm = nullptr;      // [hidden] f32
    uint16_t *narrow = nullptr;       // [rows][hidden] bf16
    // [rows]: lowered to `layer` if narrow is not finite (C9); null: not checked.
    uint32_t *failed = nullptr;
    uint32_t layer = 0;
};

// A row of a pass: one position of one sequence. Stored in device memory, so that recorded work can
// be played again for other tokens.
struct DeviceRow {
    uint64_t position;
    uint32_t token;
    uint32_t sequence;
};

// The pages of one group that a sequence of the pass sees or writes.
struct DevicePages {
    uint32_t first; // block of the first page
    uint32_t at;    // the first page's index in DevicePass::pages
};

// Slots that a sequence does not see: masks of its first `count` blocks.
struct DeviceEvicted {
    uint32_t at; // index of block 0's mask in DevicePass::evicted
    uint32_t count;
};

// The description of a pass, in device memory.
struct DevicePass {
    size_t row_count = 0;
    size_t sequence_count = 0;
    const DeviceRow *rows = nullptr;          // [row_count], the rows of a sequence consecutive
    const DevicePages *sequences = nullptr;   // [group][sequence_count]
    const DeviceEvicted *evictions = nullptr; // [sequence_count]
    uint16_t *const *pages = nullptr;         // null: evicted whole
    const uint64_t *evicted = nullptr;
    uint32_t *failed = nullptr; // [row_count] the first layer with a value that is not finite
};

// stream[r] = f32(row of the table) * scale.
struct DeviceEmbed {
    DevicePass pass;
    const uint16_t *narrow = nullptr; // [vocabulary][hidden] bf16, or
    const float *wide = nullptr;      // the same in f32, or
    const uint8_t *strips = nullptr;  // the same as in DeviceMatrix; the others are null
    Quant quant = Quant::q8_0;
    float scale = 1.0F;
    size_t hidden = 0;
    float *stream = nullptr; // [rows][hidden] f32
};

// Finishes a layer's queries, keys and values: norms, RoPE, rounding. Keys and values go into their
// pages; a key or value that is not finite marks the row.
struct DeviceHeads {
    DevicePass pass;
    uint32_t layer = 0;                // for `failed`
    uint32_t group = 0;                // the group of the layer's pages
    size_t keys_at = 0, values_at = 0; // offset of KV head 0 in a page, in elements
    size_t heads = 0, kv_heads = 0, head_dim = 0;
    bool interleaved = false; // RoPE pairs are interleaved in the products
    float eps = 0.0F;
    const float *query = nullptr;      // [rows][heads * head_dim] f32
    const float *key = nullptr;        // [rows][kv_heads * head_dim] f32
    const float *value = nullptr;      // the same
    const float *query_norm = nullptr; // [head_dim]; null: none
    const float *key_norm = nullptr;
    const float *cosine = nullptr; // [position][head_dim / 2] of this layer's RoPE
    const float *sine = nullptr;
    uint16_t *rounded = nullptr; // [rows][heads][head_dim] bf16 queries
};

// Attention of one layer (C5).
struct DeviceAttention {
    DevicePass pass;
    uint32_t group = 0;
    size_t keys_at = 0, values_at = 0; // offset of KV head 0 in a page; a head takes 64 * head_dim
    size_t heads = 0, kv_heads = 0, head_dim = 0;
    uint32_t window = 0; // positions that a query sees, its own included; 0: all
    float scale = 1.0F;
    float softcap = 0.0F;            // 0: none
    const uint16_t *query = nullptr; // [rows][heads][head_dim] bf16
    uint16_t *output = nullptr;      // [rows][heads * head_dim] bf16
    // Partial results of attend_blocks, with `blocks` reserved for each row and head: the most
    // blocks that any row sees, from the one of its first visible position on.
    size_t blocks = 0;
    float *maximum = nullptr; // [rows][heads][blocks]
    float *sum = nullptr;     // the same; 0 marks a block without visible slots
    float *partial = nullptr; // [rows][heads][blocks][head_dim]
    // [rows][kv_heads], zeros before and after: a workspace of attend_rows. Null for others.
    uint32_t *arrived = nullptr;
};

// Rows of one sequence that attend_tiles computes together.
struct DeviceTile {
    uint32_t row;   // first row in the pass
    uint32_t count; // 1 to kDeviceTileRows
};
inline constexpr size_t kDeviceTileRows = 16;

// Adds the attention that rows of a sequence give (C10) to the sequence's sums. Computes their
// weights again from queries and keys, so that the attention kernels are independent of it.
struct DeviceReceive {
    // The attention computed before. `maximum` and `sum` are workspaces for these rows, so their
    // contents from attend_blocks are not needed. Values, output and `partial` are not used.
    DeviceAttention attention;
    size_t row = 0; // the first row, in the pass
    size_t rows = 0;
    uint16_t *weights = nullptr; // [rows][heads][blocks][64] workspace
    // [block][sum_rows][64], from block 0 on. A head adds to its own row, head 0 to `sum_row`; if
    // there is only one row, all heads add to it.
    unsigned long long *sums = nullptr; // the type of CUDA's atomics
    size_t sum_rows = 1, sum_row = 0;
};
static_assert(sizeof(unsigned long long) == sizeof(uint64_t));

// The settings of a device run (C7, steps 5 to 7, 9, 10 and 12), in device memory, so that recorded
// work serves other settings.
struct DeviceSampler {
    float temperature;     // 0: the best token
    uint32_t top_k;        // 0: off
    uint64_t top_p;        // floor(top_p * 2^32); 2^32: off
    uint64_t least_weight; // floor(min_p * 2^40)
};

// Returns the bytes of DeviceDraw::room for a row of `vocabulary` logits.
constexpr size_t draw_room_bytes(size_t vocabulary) {
    return (size_t{256} << 10) + vocabulary * 8;
}

// Draws the token after a computed row, and stores it as the row to compute next, so that a device
// run continues without the host. `step` counts the draws, and is the index of each draw's results.
struct DeviceDraw {
    const float *logits = nullptr; // [vocabulary]
    size_t vocabulary = 0;
    void *room = nullptr;             // workspace of draw_room_bytes(vocabulary), 16-byte aligned
    const uint16_t *hidden = nullptr; // [hidden_size], from which the logits were computed
    size_t hidden_size = 0;
    const DeviceSampler *sampler = nullptr;
    const uint64_t *random = nullptr; // [steps] random bits of the positions drawn
    DeviceRow *row = nullptr;         // becomes the drawn token's row
    uint32_t *failed = nullptr;       // [1] of the pass; reset for the next one
    uint32_t *step = nullptr;         // [1]
    uint32_t *tokens = nullptr;       // [steps] drawn tokens
    uint32_t *failures = nullptr;     // [steps] `failed`; 0 also if a logit is not finite (C9)
    uint16_t *hiddens = nullptr;      // [steps][hidden_size]
};

struct DeviceTable {
    uint32_t version = kDeviceVersion;
    uint32_t size_bytes = sizeof(DeviceTable);
    const char *name = nullptr; // kind of device: "cuda"

    // --- Devices, memory. On failure they return null or false and store `error` (host). ---
    Device *(*open)(uint32_t index, DeviceInfo *info, DeviceError *error);
    void (*close)(Device *device);
    void *(*allocate)(Device *device, size_t size_bytes, DeviceError *error); // 256-byte aligned
    void (*release)(Device *device, void *memory); // the memory must be unused
    void *(*allocate_host)(Device *device, size_t size_bytes, DeviceError *error); // pinned
    void (*release_host)(Device *device, void *memory);
    DeviceQueue *(*create_queue)(Device *device, DeviceError *error);
    void (*destroy_queue)(DeviceQueue *queue);

    // Opens the device profile: the vendor's library computes products outside the contract, with
    // the hardware that the device has for them. Chooses an algorithm for each shape, permanently;
    // products marked `pinned` must then have one of these shapes. `id` (host) is set to everything
    // that determines their bits: the library and its version, the device's architecture, the
    // algorithms. With equal ids, equal rows of x at equal positions give equal bits. Called once
    // for a device, before queues get such products; the first of them makes a queue allocate a
    // workspace (32 MiB). Returns false if it fails; nothing is pinned then.
    bool (*pin_products)(Device *device, const DeviceShape *shapes, size_t count,
                         char (&id)[kDeviceIdBytes], DeviceError *error);

    // --- Enqueued work. ---
    // Host or device.
    void (*copy)(DeviceQueue *queue, void *to, const void *from, size_t size_bytes);
    // Zeroes the bytes from `from_bytes` on in each of `rows` consecutive rows.
    void (*clear)(DeviceQueue *queue, void *memory, size_t rows, size_t row_bytes,
                  size_t from_bytes);
    // Waits for all enqueued work. Returns false if any failed since the last call.
    bool (*finish)(DeviceQueue *queue, DeviceError *error);

    // Work enqueued between the two is recorded, not run. end_recording returns null on failure.
    void (*begin_recording)(DeviceQueue *queue);
    DeviceGraph *(*end_recording)(DeviceQueue *queue, DeviceError *error);
    void (*play)(DeviceQueue *queue, DeviceGraph *graph);
    void (*destroy_graph)(DeviceGraph *graph);

    // --- Kernels, enqueued. ---
    // least[n] = the smallest exponent in row n of w [outputs][depth] bf16.
    void (*measure)(DeviceQueue *queue, const uint16_t *w, size_t outputs, size_t depth,
                    uint32_t *least);
    void (*embed)(DeviceQueue *queue, const DeviceEmbed &task);
    void (*quantize)(DeviceQueue *queue, const DeviceQuantize &task);
    size_t (*quantized_bytes)(size_t rows, size_t depth, size_t group);
    void (*residual)(DeviceQueue *queue, const DeviceResidual &task);
    void (*product)(DeviceQueue *queue, const DeviceProduct &task);
    void (*gated_product)(DeviceQueue *queue, const DeviceGatedProduct &task);
    void (*heads)(DeviceQueue *queue, const DeviceHeads &task);
    // Two algorithms with the same bits: for few rows over any context, and for many rows of a
    // sequence.
    void (*attend_blocks)(DeviceQueue *queue, const DeviceAttention &task);
    void (*attend_tiles)(DeviceQueue *queue, const DeviceAttention &task, const DeviceTile *tiles,
                         size_t tile_count);
    // `heads`, then `attend_blocks`, of a pass in which each row is the only one of its sequence.
    void (*attend_rows)(DeviceQueue *queue, const DeviceHeads &heads, const DeviceAttention &task);
    void (*receive)(DeviceQueue *queue, const DeviceReceive &task);
    void (*softcap)(DeviceQueue *queue, float *x, size_t n, float cap);
    void (*draw)(DeviceQueue *queue, const DeviceDraw &task);
};

// The only symbol of a module, extern "C". It returns the table, which stays valid while the module
// is loaded.
inline constexpr const char *kDeviceEntry = "stasis_device_table";
using DeviceEntry = const DeviceTable *();

} // namespace stasis::kernels
