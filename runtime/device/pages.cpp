// Pages over there; see pages.h. What is enqueued is waited for, so that the queues of passes,
// which are others, find it done.
#include "runtime/device/pages.h"

namespace stasis {

namespace {

uint8_t *pointer(PageAddress address) {
    return reinterpret_cast<uint8_t *>(static_cast<uintptr_t>(address));
}

DevicePages &self(void *user) {
    return *static_cast<DevicePages *>(user);
}

} // namespace

template <typename Work> void DevicePages::run(const char *doing, const Work &work) {
    const std::lock_guard lock(mutex_);
    work();
    queue_.finish(doing);
}

PageMemory DevicePages::memory() {
    PageMemory memory;
    memory.user = this;
    memory.take = [](void *user, size_t size_bytes) {
        return static_cast<PageAddress>(
            reinterpret_cast<uintptr_t>(self(user).on_.take(size_bytes)));
    };
    memory.give_back = [](void *user, PageAddress address, size_t) noexcept {
        self(user).on_.give_back(pointer(address));
    };
    memory.clear = [](void *user, PageAddress address, size_t rows, size_t row_bytes,
                      size_t from_bytes) {
        DevicePages &pages = self(user);
        pages.run("clearing a page", [&] {
            pages.queue_.table().clear(pages.queue_.get(), pointer(address), rows, row_bytes,
                                       from_bytes);
        });
    };
    memory.copy = [](void *user, PageAddress to, PageAddress from, size_t size_bytes) {
        DevicePages &pages = self(user);
        pages.run("copying a page",
                  [&] { pages.queue_.copy(pointer(to), pointer(from), size_bytes); });
    };
    memory.read = [](void *user, void *to, PageAddress from, size_t offset_bytes,
                     size_t size_bytes) {
        DevicePages &pages = self(user);
        pages.run("reading a page",
                  [&] { pages.queue_.copy(to, pointer(from) + offset_bytes, size_bytes); });
    };
    memory.write = [](void *user, PageAddress to, const void *from, size_t size_bytes) {
        DevicePages &pages = self(user);
        pages.run("writing a page", [&] { pages.queue_.copy(pointer(to), from, size_bytes); });
    };
    return memory;
}

} // namespace stasis
