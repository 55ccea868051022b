// The attention received (C10) of a pass on a device: sums of the sequences that track it go there
// before the pass and come back behind it, so that who has them, and when they count, is decided on
// the host alone (timeline/attention_sums.h).
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

    // Enqueues that the sums of the pass's sequences go there. Until the queue is done with the
    // pass, nobody touches them.
    void begin(const Pass &pass, const DeviceWorkQueue &queue);
    // Whether the pass has such sequences: it is then not recorded, as their sums have no fixed
    // place.
    bool any() const { return !tracked_.empty(); }
    // Enqueues what a layer adds, behind its attention.
    void add(const DeviceWorkQueue &queue, const kernels::DeviceAttention &attention,
             size_t layer) const;
    // Enqueues the way back.
    void end(const DeviceWorkQueue &queue) const;
    uint64_t size_bytes() const { return sums_.size_bytes() + room_.size_bytes(); }

  private:
    struct Tracked {
        size_t row, rows;
        size_t blocks; // of its positions, those of the pass included
        size_t sum_rows;
        uint64_t *here; // the host's
        size_t at;      // in sums_, in numbers
        size_t count() const { return blocks * sum_rows * kPage; }
    };
    unsigned long long *there(const Tracked &tracked) const {
        return static_cast<unsigned long long *>(sums_.data()) + tracked.at;
    }

    std::vector<Tracked> tracked_;
    DeviceBuffer sums_, room_;
};

} // namespace stasis
