// Accumulates attention on the device; see received.h.
#include "runtime/compute/device/received.h"

#include <algorithm>

#include "runtime/compute/network.h"
#include "runtime/compute/pass.h"
#include "runtime/kv/page_pool.h"

namespace stasis {

namespace {

constexpr size_t kRoomBytesMax = size_t{32} << 20; // workspace of rows that are computed together

// Returns the bytes of a row's weights, maxima and sums over its blocks and query heads.
size_t row_bytes(size_t heads, size_t blocks) {
    return heads * blocks * (kPage * sizeof(uint16_t) + 2 * sizeof(float));
}

// Returns how many rows are computed together, at least one.
size_t rows_together(size_t rows, size_t heads, size_t blocks) {
    return std::clamp<size_t>(kRoomBytesMax / row_bytes(heads, blocks), 1, rows);
}

} // namespace

// Lists the tracked sequences, and reserves memory for their sums and for the largest workspace.
void DeviceReceived::begin(const Pass &pass, const DeviceWorkQueue &queue) {
    const Config &config = pass.network.config;
    tracked_.clear();
    size_t count = 0, room_bytes = 0;
    for (size_t i = 0; i < pass.sequence_count; ++i) {
        const Sequence &sequence = pass.sequences[i];
        if (sequence.sums == nullptr) {
            continue;
        }
        const size_t blocks = (sequence.begin + sequence.rows + kPage - 1) / kPage;
        tracked_.push_back(
            {sequence.row, sequence.rows, blocks, sequence.sum_rows, sequence.sums, count});
        count += tracked_.back().count();
        room_bytes = std::max(room_bytes, rows_together(sequence.rows, config.heads, blocks) *
                                              row_bytes(config.heads, blocks));
    }
    sums_.grow(count * sizeof(uint64_t));
    room_.grow(room_bytes);
    for (const Tracked &tracked : tracked_) {
        queue.copy(there(tracked), tracked.here, tracked.count() * sizeof(uint64_t));
    }
}

void DeviceReceived::add(const DeviceWorkQueue &queue, const kernels::DeviceAttention &attention,
                         size_t layer) const {
    for (const Tracked &tracked : tracked_) {
        kernels::DeviceReceive task;
        task.attention = attention;
        task.sum_rows = tracked.sum_rows;
        task.sum_row = layer * attention.heads;
        task.sums = there(tracked);
        // As many blocks as any row of the sequence sees in this layer.
        const size_t seen = attention.window == 0 ? tracked.blocks : attention.window / kPage + 2;
        const size_t blocks = std::min(tracked.blocks, seen);
        const size_t most = rows_together(tracked.rows, attention.heads, tracked.blocks);
        const size_t partials = most * attention.heads * blocks;
        task.attention.blocks = blocks;
        task.attention.maximum = static_cast<float *>(room_.data());
        task.attention.sum = task.attention.maximum + partials;
        task.weights = reinterpret_cast<uint16_t *>(task.attention.sum + partials);
        for (size_t done = 0; done < tracked.rows; done += most) {
            task.row = tracked.row + done;
            task.rows = std::min(most, tracked.rows - done);
            queue.table().receive(queue.get(), task);
        }
    }
}

void DeviceReceived::end(const DeviceWorkQueue &queue) const {
    for (const Tracked &tracked : tracked_) {
        queue.copy(tracked.here, there(tracked), tracked.count() * sizeof(uint64_t));
    }
}

} // namespace stasis
