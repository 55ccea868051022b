// KV pages in a device's memory.
#pragma once

#include <mutex>

#include "runtime/device/device.h"
#include "runtime/page_memory.h"

namespace stasis {

// What PageMemory's functions work with. Outlives the pool.
class DevicePages {
  public:
    explicit DevicePages(const OpenDevice &on) : on_(on), queue_(on) {}
    PageMemory memory();

  private:
    template <typename Work> void run(const char *doing, const Work &work);

    const OpenDevice &on_;
    std::mutex mutex_; // of the queue
    DeviceWorkQueue queue_;
};

} // namespace stasis
