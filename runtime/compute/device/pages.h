// KV pages in a device's memory.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "runtime/compute/device/device.h"
#include "runtime/kv/page_memory.h"

namespace stasis {

// What PageMemory's functions work with. Outlives the pool.
class DevicePageMemory {
  public:
    explicit DevicePageMemory(const OpenDevice &on);
    ~DevicePageMemory();
    PageMemory memory();

  private:
    struct Stage;
    // A transfer has two stages of a batch each, or a page, if that is more.
    static constexpr size_t kBatchBytes = size_t{32} << 20;
    // Stages that are kept, at most: pinned memory takes longer to get than to use.
    static constexpr size_t kIdleMax = 4;

    template <typename Work> void run(const char *doing, const Work &work);
    static void add_stages(PageMemory &memory);
    std::unique_ptr<Stage> take_idle(size_t size_bytes);
    PageStage *take_stage(size_t size_bytes);
    void give_back(PageStage *stage) noexcept;

    const OpenDevice &on_;
    std::mutex mutex_; // of the queue
    DeviceWorkQueue queue_;
    std::mutex idle_mutex_;
    std::vector<std::unique_ptr<Stage>> idle_;
};

} // namespace stasis
