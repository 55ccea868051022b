// KV pages in host memory; see page_memory.h.
#include "runtime/kv/page_memory.h"

#include <cstring>

namespace stasis {

namespace {

const Memory &memory_of(void *user) {
    return *static_cast<const Memory *>(user);
}

void *pointer(PageAddress address) {
    return reinterpret_cast<void *>(address);
}

PageAddress take(void *user, size_t size_bytes) {
    return PageAddress{reinterpret_cast<uintptr_t>(memory_of(user).take(size_bytes))};
}

void give_back(void *user, PageAddress address, size_t size_bytes) noexcept {
    memory_of(user).give_back(pointer(address), size_bytes);
}

void clear(void *, PageAddress address, size_t rows, size_t row_bytes, size_t from_bytes) {
    auto *row = static_cast<uint8_t *>(pointer(address));
    for (size_t i = 0; i < rows; ++i, row += row_bytes) {
        std::memset(row + from_bytes, 0, row_bytes - from_bytes);
    }
}

void copy(void *, PageAddress to, PageAddress from, size_t size_bytes) {
    std::memcpy(pointer(to), pointer(from), size_bytes);
}

} // namespace

PageMemory host_pages(const Memory &given) {
    PageMemory memory;
    memory.user = const_cast<Memory *>(&given); // take and give_back do not change it
    memory.on_host = true;
    memory.batch_bytes = size_t{64} << 20; // only sets how often a load checks its watch
    memory.take = take;
    memory.give_back = give_back;
    memory.clear = clear;
    memory.copy = copy;
    return memory;
}

} // namespace stasis
