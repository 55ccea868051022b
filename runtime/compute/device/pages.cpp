// KV pages in device memory; see pages.h. Clearing or copying a page waits until the device has
// done it, because forward passes run on other queues. It takes some microseconds, once in as many
// tokens as a page holds.
#include "runtime/compute/device/pages.h"

#include <utility>

namespace stasis {

namespace {

uint8_t *pointer(PageAddress address) {
    return reinterpret_cast<uint8_t *>(static_cast<uintptr_t>(address));
}

DevicePageMemory &self(void *user) {
    return *static_cast<DevicePageMemory *>(user);
}

} // namespace

// Pinned memory with a queue of its own, so that transfers do not wait for each other.
struct DevicePageMemory::Stage : PageStage {
    DeviceWorkQueue queue;
    PinnedBuffer buffer;

    explicit Stage(const OpenDevice &on) : queue(on), buffer(on) {}
    static Stage &of(PageStage *stage) { return *static_cast<Stage *>(stage); }
};

DevicePageMemory::DevicePageMemory(const OpenDevice &on) : on_(on), queue_(on) {
    idle_.reserve(kIdleMax); // so that give_back cannot fail
}

DevicePageMemory::~DevicePageMemory() = default;

// Returns the smallest idle stage that is large enough, else any; null: there is none.
std::unique_ptr<DevicePageMemory::Stage> DevicePageMemory::take_idle(size_t size_bytes) {
    const std::lock_guard lock(idle_mutex_);
    size_t best = 0;
    for (size_t i = 1; i < idle_.size(); ++i) {
        const size_t bytes = idle_[i]->size_bytes, least = idle_[best]->size_bytes;
        best = bytes >= size_bytes && (least < size_bytes || bytes < least) ? i : best;
    }
    if (idle_.empty()) {
        return nullptr;
    }
    std::swap(idle_[best], idle_.back());
    std::unique_ptr<Stage> stage = std::move(idle_.back());
    idle_.pop_back();
    return stage;
}

PageStage *DevicePageMemory::take_stage(size_t size_bytes) {
    on_.require_this_process();
    std::unique_ptr<Stage> stage = take_idle(size_bytes);
    if (stage == nullptr) {
        stage = std::make_unique<Stage>(on_);
    }
    if (stage->size_bytes < size_bytes) {
        stage->buffer.grow(size_bytes);
        stage->data = static_cast<uint8_t *>(stage->buffer.data());
        stage->size_bytes = size_bytes;
    }
    return stage.release();
}

void DevicePageMemory::give_back(PageStage *stage) noexcept {
    std::unique_ptr<Stage> own(&Stage::of(stage));
    own->queue.finish_quietly();
    const std::lock_guard lock(idle_mutex_);
    if (idle_.size() < kIdleMax) {
        idle_.push_back(std::move(own));
    }
}

// Enqueues work on a page and waits for it.
template <typename Work> void DevicePageMemory::run(const char *doing, const Work &work) {
    on_.require_this_process();
    const std::lock_guard lock(mutex_);
    work();
    queue_.finish(doing);
}

void DevicePageMemory::add_stages(PageMemory &memory) {
    memory.take_stage = [](void *user, size_t size_bytes) {
        return self(user).take_stage(size_bytes);
    };
    memory.give_back_stage = [](void *user, PageStage *stage) noexcept {
        self(user).give_back(stage);
    };
    memory.read = [](void *, PageStage *stage, size_t at_bytes, PageAddress from,
                     size_t offset_bytes, size_t size_bytes) {
        Stage::of(stage).queue.copy(stage->data + at_bytes, pointer(from) + offset_bytes,
                                    size_bytes);
    };
    memory.write = [](void *, PageStage *stage, size_t at_bytes, PageAddress to,
                      size_t size_bytes) {
        Stage::of(stage).queue.copy(pointer(to), stage->data + at_bytes, size_bytes);
    };
    memory.finish = [](void *, PageStage *stage) {
        Stage::of(stage).queue.finish("copying pages");
    };
}

PageMemory DevicePageMemory::memory() {
    PageMemory memory;
    memory.user = this;
    memory.batch_bytes = kBatchBytes;
    memory.take = [](void *user, size_t size_bytes) {
        return static_cast<PageAddress>(
            reinterpret_cast<uintptr_t>(self(user).on_.take(size_bytes)));
    };
    memory.give_back = [](void *user, PageAddress address, size_t) noexcept {
        self(user).on_.give_back(pointer(address));
    };
    memory.clear = [](void *user, PageAddress address, size_t rows, size_t row_bytes,
                      size_t from_bytes) {
        DevicePageMemory &pages = self(user);
        pages.run("clearing a page", [&] {
            pages.queue_.table().clear(pages.queue_.get(), pointer(address), rows, row_bytes,
                                       from_bytes);
        });
    };
    memory.copy = [](void *user, PageAddress to, PageAddress from, size_t size_bytes) {
        DevicePageMemory &pages = self(user);
        pages.run("copying a page",
                  [&] { pages.queue_.copy(pointer(to), pointer(from), size_bytes); });
    };
    add_stages(memory);
    return memory;
}

} // namespace stasis
