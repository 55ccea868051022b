// What a module for a device offers: its memory, queues of work, and the contract's kernels on
// both. A module is a library of its own that is opened when a model asks for its device; it says
// what it has in one table, as plain functions on plain data, and knows neither models nor
// sessions. Nothing here throws. What is enqueued runs in order; what it meets is told by `finish`,
// after which the queue, unless the device is lost, goes on. Every pointer in a task is to memory
// of the device unless its comment says "host"; tasks themselves are read before the call returns.
// bf16 values are raw uint16_t bits; f32 values are float. Every result equals the reference
// kernels' bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/table.h"

namespace stasis::kernels {

inline constexpr uint32_t kDeviceVersion =
    1; // of this header; a module says which it was built for

// What went wrong, in the driver's or the module's words.
struct DeviceError {
    enum Kind : int32_t { none, unavailable, no_memory, lost, failed };
    int32_t kind = none; // unavailable: no driver, or no such device
    char message[252] = {};
};

struct DeviceInfo {
    char name[128];
    char driver[32]; // version of the driver and of the runtime that the module was built with,
    char runtime[32];
    uint32_t major, minor; // compute capability
    uint32_t multiprocessors;
    uint64_t memory_bytes, free_bytes;
};

// What the attention kernels hold: query heads of one KV head, elements of a head.
inline constexpr size_t kDeviceGroupHeadsMax = 16, kDeviceHeadDimMax = 256;

struct Device;      // one opened device
struct DeviceQueue; // work in order; one host thread at a time
struct DeviceGraph; // recorded work

// A weight matrix, of bf16 values or in blocks of integers (C8). `least` helps with C2: see
// cuda/arithmetic.h.
struct DeviceMatrix {
    const uint16_t *w = nullptr;     // [outputs][depth] bf16, row-major, 16-byte aligned
    const uint32_t *least = nullptr; // [outputs] by `measure`
    const float *bias = nullptr;     // [outputs] f32; null: none
    size_t outputs = 0;
    size_t depth = 0;
    const uint8_t *strips = nullptr; // in place of w and least: as in strips.h, 16-byte aligned
    Quant quant = Quant::q8_0;       // of the integers
};

// Rows as 8-bit integers in groups (C8), in the order that this module's products read them in.
struct DeviceQuantize {
    const uint16_t *x = nullptr; // [rows][depth] bf16, 16-byte aligned
    size_t rows = 0;
    size_t depth = 0;          // a multiple of group
    size_t group = 0;          // 32 or 256: elements of the weights' block
    void *quantized = nullptr; // quantized_bytes(rows, depth, group), 16-byte aligned
};

// y[i][r][n] = sum over k of x[r][k] * w[i][n][k] by the block rule (C1), for matrices in blocks of
// integers as C8 says, plus the bias.
struct DeviceProduct {
    const uint16_t *x = nullptr; // [rows][depth] bf16, 16-byte aligned
    size_t rows = 0;
    size_t count = 0; // matrices, 1 to 3, all of one depth
    DeviceMatrix w[3];
    float *y[3] = {};    // [rows][w[i].outputs] f32
    bool pinned = false; // by what `pin_products` chose; y and biases are 16-byte aligned then
    // x by `quantize`, in groups of 32 and of 256; null where no matrix has such blocks.
    const void *quantized[2] = {};
};

// A product whose algorithm is chosen ahead.
struct DeviceShape {
    size_t rows, outputs, depth;
    bool bias;
    bool operator==(const DeviceShape &) const = default;
};
inline constexpr size_t kDeviceIdBytes = 192; // of `pin_products`, the final NUL included

// y = bf16(act(gate) * up) of the products of x with both matrices (C3, activations).
struct DeviceGatedProduct {
    const uint16_t *x = nullptr; // [rows][depth] bf16, 16-byte aligned
    size_t rows = 0;
    DeviceMatrix gate, up;
    bool gelu = false;       // else silu
    float *gate_y = nullptr; // [rows][outputs] f32, room to work in
    float *up_y = nullptr;   // the same
    uint16_t *y = nullptr;   // [rows][outputs] bf16
    bool pinned = false;     // both products are computed by what `pin_products` chose instead
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
    // [rows]: becomes `layer` where it is more and narrow is not finite (C9); null: not looked at.
    uint32_t *failed = nullptr;
    uint32_t layer = 0;
};

// A row of a pass: one position of one sequence. Lies in device memory, so that recorded work can
// be played again for other tokens.
struct DeviceRow {
    uint64_t position;
    uint32_t token;
    uint32_t sequence;
};

// The pages of one group that a sequence of the pass sees or writes.
struct DevicePages {
    uint32_t first; // block of the first of them
    uint32_t at;    // its index in DevicePass::pages
};

// Slots that a sequence does not see: masks of its first `count` blocks.
struct DeviceEvicted {
    uint32_t at; // index of block 0's in DevicePass::evicted
    uint32_t count;
};

// What a pass computes, in device memory.
struct DevicePass {
    size_t row_count = 0;
    size_t sequence_count = 0;
    const DeviceRow *rows = nullptr;          // [row_count], the rows of a sequence side by side
    const DevicePages *sequences = nullptr;   // [group][sequence_count]
    const DeviceEvicted *evictions = nullptr; // [sequence_count]
    uint16_t *const *pages = nullptr;         // null: evicted whole
    const uint64_t *evicted = nullptr;
    uint32_t *failed = nullptr; // [row_count] the first layer that gave a row what is not finite
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

// Finishes a layer's queries, keys and values: norms, RoPE, rounding; keys and values go into their
// pages, and what is not finite there marks the row.
struct DeviceHeads {
    DevicePass pass;
    uint32_t layer = 0;                // for `failed`
    uint32_t group = 0;                // of the layer's pages
    size_t keys_at = 0, values_at = 0; // of KV head 0 in a page, in elements
    size_t heads = 0, kv_heads = 0, head_dim = 0;
    bool interleaved = false; // pairs lie side by side in the products
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
    size_t keys_at = 0, values_at = 0; // of KV head 0 in a page; a head takes 64 * head_dim
    size_t heads = 0, kv_heads = 0, head_dim = 0;
    uint32_t window = 0; // positions that a query sees, itself included; 0: all
    float scale = 1.0F;
    float softcap = 0.0F;            // 0: none
    const uint16_t *query = nullptr; // [rows][heads][head_dim] bf16
    uint16_t *output = nullptr;      // [rows][heads * head_dim] bf16
    // Partials of attend_blocks, room for `blocks` of each row and head: as many as any row sees
    // blocks, from the one of its first visible position on.
    size_t blocks = 0;
    float *maximum = nullptr; // [rows][heads][blocks]
    float *sum = nullptr;     // the same; a block with nothing visible is marked by a sum of 0
    float *partial = nullptr; // [rows][heads][blocks][head_dim]
};

// Rows of one sequence that attend_tiles computes together.
struct DeviceTile {
    uint32_t row;   // of the pass
    uint32_t count; // 1 to kDeviceTileRows
};
inline constexpr size_t kDeviceTileRows = 16;

// Adds the attention that rows of a sequence give (C10) to its sums. Computes their weights once
// more, from queries and keys, so that attention itself knows nothing of it.
struct DeviceReceive {
    // What was computed; `maximum` and `sum`, of the rows here alone, are room to work in, and so
    // are not needed from attend_blocks. Of values, output and `partial` nothing is looked at.
    DeviceAttention attention;
    size_t row = 0; // the first, of the pass
    size_t rows = 0;
    uint16_t *weights = nullptr; // [rows][heads][blocks][64] room to work in
    // [block][sum_rows][64], from block 0 on. A head adds to its own row, head 0 to `sum_row`; if
    // there is one row alone, all do to that.
    unsigned long long *sums = nullptr; // as CUDA's atomics have it
    size_t sum_rows = 1, sum_row = 0;
};
static_assert(sizeof(unsigned long long) == sizeof(uint64_t));

// How a run of tokens is drawn (C7, steps 5 to 7, 9, 10 and 12), in device memory, so that recorded
// work serves other settings.
struct DeviceSampler {
    float temperature;     // 0: the best token
    uint32_t top_k;        // 0: off
    uint64_t top_p;        // floor(top_p * 2^32); 2^32: off
    uint64_t least_weight; // floor(min_p * 2^40)
};

// Of DeviceDraw::room, for a row of so many logits.
constexpr size_t draw_room_bytes(size_t vocabulary) {
    return (size_t{256} << 10) + vocabulary * 8;
}

// Draws the token behind a row that was computed, and makes the row that of the token: a run of
// tokens goes on without the host. `step` counts the draws; what is told of each has that index.
struct DeviceDraw {
    const float *logits = nullptr; // [vocabulary]
    size_t vocabulary = 0;
    void *room = nullptr;             // draw_room_bytes(vocabulary) to work in, 16-byte aligned
    const uint16_t *hidden = nullptr; // [hidden_size], what the logits come from
    size_t hidden_size = 0;
    const DeviceSampler *sampler = nullptr;
    const uint64_t *random = nullptr; // [steps] of the positions drawn
    DeviceRow *row = nullptr;         // becomes the drawn token's
    uint32_t *failed = nullptr;       // [1] of the pass; ready for the next one
    uint32_t *step = nullptr;         // [1]
    uint32_t *tokens = nullptr;       // [steps] drawn
    uint32_t *failures = nullptr;     // [steps] `failed`, 0 also where a logit is not finite (C9)
    uint16_t *hiddens = nullptr;      // [steps][hidden_size]
};

struct DeviceTable {
    uint32_t version = kDeviceVersion;
    uint32_t size_bytes = sizeof(DeviceTable);
    const char *name = nullptr; // of the kind of device: "cuda"

    // --- Devices, memory. Null or false: it failed, `error` (host) says why. ---
    Device *(*open)(uint32_t index, DeviceInfo *info, DeviceError *error);
    void (*close)(Device *device);
    void *(*allocate)(Device *device, size_t size_bytes, DeviceError *error); // 256-byte aligned
    void (*release)(Device *device, void *memory); // no work uses it any more
    void *(*allocate_host)(Device *device, size_t size_bytes, DeviceError *error); // pinned
    void (*release_host)(Device *device, void *memory);
    DeviceQueue *(*create_queue)(Device *device, DeviceError *error);
    void (*destroy_queue)(DeviceQueue *queue);

    // The device profile: has the vendor's library compute products outside the contract, on what
    // the device has for that. Chooses an algorithm for each shape, for good; products marked
    // `pinned` then have these shapes and no others. `id` (host) becomes what their bits depend on:
    // the library and its version, the device's architecture, the algorithms. Where two ids are
    // equal, equal rows of x in equal places give equal bits. Once for a device, before queues are
    // given such products, for the first of which a queue takes workspace (32 MiB). False: it
    // cannot be done; nothing is pinned.
    bool (*pin_products)(Device *device, const DeviceShape *shapes, size_t count,
                         char (&id)[kDeviceIdBytes], DeviceError *error);

    // --- Enqueued. ---
    void (*copy)(DeviceQueue *queue, void *to, const void *from, size_t size_bytes); // host or not
    // To zero: of each of `rows` rows that follow each other, the bytes from `from_bytes` on.
    void (*clear)(DeviceQueue *queue, void *memory, size_t rows, size_t row_bytes,
                  size_t from_bytes);
    // Waits for all of it. False: something failed since the last time.
    bool (*finish)(DeviceQueue *queue, DeviceError *error);

    // What is enqueued between the two is recorded, not run. Null: it could not be.
    void (*begin_recording)(DeviceQueue *queue);
    DeviceGraph *(*end_recording)(DeviceQueue *queue, DeviceError *error);
    void (*play)(DeviceQueue *queue, DeviceGraph *graph);
    void (*destroy_graph)(DeviceGraph *graph);

    // --- Kernels, enqueued. ---
    // least[n] = how small the numbers of row n of w [outputs][depth] bf16 are.
    void (*measure)(DeviceQueue *queue, const uint16_t *w, size_t outputs, size_t depth,
                    uint32_t *least);
    void (*embed)(DeviceQueue *queue, const DeviceEmbed &task);
    void (*quantize)(DeviceQueue *queue, const DeviceQuantize &task);
    size_t (*quantized_bytes)(size_t rows, size_t depth, size_t group);
    void (*residual)(DeviceQueue *queue, const DeviceResidual &task);
    void (*product)(DeviceQueue *queue, const DeviceProduct &task);
    void (*gated_product)(DeviceQueue *queue, const DeviceGatedProduct &task);
    void (*heads)(DeviceQueue *queue, const DeviceHeads &task);
    // Two ways to the same bits: few rows over long contexts, many rows of a sequence.
    void (*attend_blocks)(DeviceQueue *queue, const DeviceAttention &task);
    void (*attend_tiles)(DeviceQueue *queue, const DeviceAttention &task, const DeviceTile *tiles,
                         size_t tile_count);
    void (*receive)(DeviceQueue *queue, const DeviceReceive &task);
    void (*softcap)(DeviceQueue *queue, float *x, size_t n, float cap);
    void (*draw)(DeviceQueue *queue, const DeviceDraw &task);
};

// The one symbol of a module, extern "C": its table, which stays valid while it is loaded.
inline constexpr const char *kDeviceEntry = "stasis_device_table";
using DeviceEntry = const DeviceTable *();

} // namespace stasis::kernels
