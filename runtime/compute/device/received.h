// Accumulates attention (C10) for a pass on a device. The sums of sequences that track attention
// are copied to the device before the pass and back after it, so that host code alone decides who
// shares them and when they count (timeline/attention_sums.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/compute/device/device.h"
#include "runtime/kv/page.h"

namespace stasis {

struct Pass;

class DeviceReceived {
  public:
    explicit DeviceReceived(const OpenDevice &on) : sums_(on), room_(on) {}

    // Enqueues copying the sums of the pass's sequences to the device. The host's sums must not be
    // used until the queue has finished the pass.
    void begin(const Pass &pass, const DeviceWorkQueue &queue);
    // Reports whether the pass has tracked sequences. Such a pass is not recorded, because their
    // sums have no fixed address.
    bool any() const { return !tracked_.empty(); }
    // Enqueues adding a layer's attention to the sums, after the layer's attention itself.
    void add(const DeviceWorkQueue &queue, const kernels::DeviceAttention &attention,
             size_t layer) const;
    // Enqueues copying the sums back to the host.
    void end(const DeviceWorkQueue &queue) const;
    uint64_t size_bytes() const { return sums_.size_bytes() + room_.size_bytes(); }

  private:
    struct Tracked {
        size_t row, rows;
        size_t blocks; // of its positions, those of the pass included
        size_t sum_rows;
        uint64_t *here; // the host's sums
        size_t at;      // index in sums_
        size_t count() const { return blocks * sum_rows * kPage; }
    };
    unsigned long long *there(const Tracked &tracked) const {
        return static_cast<unsigned long long *>(sums_.data()) + tracked.at;
    }

    std::vector<Tracked> tracked_;
    DeviceBuffer sums_, room_;
};

} // namespace stasis
