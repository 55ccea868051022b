// KV pages in device memory, as the functions of PageMemory. Knows nothing of their contents.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "runtime/compute/device/device.h"
#include "runtime/kv/page_memory.h"

namespace stasis {

// The state of the PageMemory functions. Outlives the pool.
class DevicePageMemory {
  public:
    explicit DevicePageMemory(const OpenDevice &on);
    ~DevicePageMemory();
    PageMemory memory();

  private:
    struct Stage;
    // Bytes of one batch. A transfer has two stages, each of a batch, or of one page if that is
    // larger.
    static constexpr size_t kBatchBytes = size_t{32} << 20;
    // Idle stages kept, at most. They are kept because allocating pinned memory takes longer than a
    // transfer.
    static constexpr size_t kIdleMax = 4;

    template <typename Work> void run(const char *doing, const Work &work);
    static void add_stages(PageMemory &memory);
    std::unique_ptr<Stage> take_idle(size_t size_bytes);
    PageStage *take_stage(size_t size_bytes);
    void give_back(PageStage *stage) noexcept;

    const OpenDevice &on_;
    std::mutex mutex_; // protects the queue
    DeviceWorkQueue queue_;
    std::mutex idle_mutex_;
    std::vector<std::unique_ptr<Stage>> idle_;
};

} // namespace stasis
