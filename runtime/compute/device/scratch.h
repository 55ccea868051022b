// One call's scratch on a device: its queue, buffers for a number of rows, the description of a
// pass, and recorded passes. Part of a Pass; one caller at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "runtime/compute/device/received.h"
#include "runtime/compute/device/weights.h"

namespace stasis {

struct Network;
struct Pass;

struct DeviceScratch {
    explicit DeviceScratch(DeviceModel &model);
    ~DeviceScratch();
    DeviceScratch(const DeviceScratch &) = delete;
    DeviceScratch &operator=(const DeviceScratch &) = delete;

    // Reserves memory for `rows` rows.
    void fit(const Config &config, size_t rows);
    // Enqueues copying the description of the pass's sequences to device memory, which sets `pass`
    // and `tiles`. Reserves memory for the partial results of attention. Does not wait.
    void describe(const Pass &from);
    uint64_t size_bytes() const;

    DeviceModel &model;
    DeviceWorkQueue queue;

    // Device memory for `rows` rows; shapes as in CpuScratch.
    size_t rows = 0;
    float *stream = nullptr;
    float *wide = nullptr;
    uint16_t *narrow = nullptr;   // [rows][hidden] normalised
    uint16_t *attended = nullptr; // [rows][heads * head_dim]
    uint16_t *inner = nullptr;    // [rows][intermediate]
    float *query = nullptr;
    float *key = nullptr;
    float *value = nullptr;
    uint16_t *rounded = nullptr; // [rows][heads][head_dim]
    float *gate = nullptr;       // [rows][intermediate]
    float *up = nullptr;
    uint16_t *hidden = nullptr; // [rows][hidden] final
    // The inputs of the next product, quantized by groups of 32 and of 256; null: no matrix has
    // such blocks.
    void *quantized[2] = {};

    // The pass described last.
    kernels::DevicePass pass;
    std::vector<DeviceRope> ropes;
    const kernels::DeviceTile *tiles = nullptr;
    size_t tile_count = 0; // 0: attention by blocks
    size_t padded = 0;     // as Pass::padded
    size_t blocks = 0;     // blocks of partial results reserved for each row and head
    float *maximum = nullptr, *sum = nullptr, *partial = nullptr;
    uint32_t *arrived = nullptr; // as in DeviceAttention
    uint32_t *failed_here = nullptr; // pinned, [rows]: the host's copy of `pass.failed`

    DeviceReceived received; // the sequences that track attention

    // Recorded work, by its parameters besides the addresses of the buffers.
    struct Key {
        // One row of each sequence; one row and the draw after it.
        enum Kind { whole, drawing } kind;
        size_t rows, blocks;
        auto operator<=>(const Key &) const = default;
    };
    std::map<Key, kernels::DeviceGraph *> recorded;
    static constexpr size_t kRecordedMost = 64; // at this number all are destroyed
    // Plays the work that `enqueue` enqueues, and records it first if no recording exists.
    template <typename Enqueue> void replay(const Key &key, const Enqueue &enqueue);
    void forget_recorded(); // to be called after a buffer has moved

    DeviceBuffer storage, partials, described, logits, run;
    PinnedBuffer staged, results, run_staged;

  private:
    struct Layout;
    void fill(const Pass &from, const Layout &layout);
    void fit_partials(const Config &config, size_t row_count);
    size_t pages_max_ = 0, evicted_max_ = 0; // capacity of the description
};

template <typename Enqueue> void DeviceScratch::replay(const Key &wanted, const Enqueue &enqueue) {
    const kernels::DeviceTable &table = queue.table();
    if (recorded.size() == kRecordedMost && recorded.count(wanted) == 0) {
        forget_recorded();
    }
    kernels::DeviceGraph *&graph = recorded[wanted];
    if (graph == nullptr) {
        kernels::DeviceError error;
        table.begin_recording(queue.get());
        enqueue();
        graph = table.end_recording(queue.get(), &error);
        if (graph == nullptr) {
            recorded.erase(wanted);
            model.on().fail_with(error, "recording a pass");
        }
    }
    table.play(queue.get(), graph);
}

} // namespace stasis
