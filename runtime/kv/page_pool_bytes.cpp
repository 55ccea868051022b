// Compares, copies and clears the bytes of KV pages, in host or device memory; see page_pool.h.
// Apart from this file, only page_staging.cpp accesses them, and a forward pass by their addresses.
#include <cstring>

#include "runtime/kv/page_pool.h"
#include "runtime/kv/page_staging.h"

namespace stasis {

namespace {

constexpr size_t kNumberBytes = sizeof(uint16_t);

} // namespace

const uint16_t *PagePool::numbers(const PageRef &page) const {
    return memory_.on_host ? reinterpret_cast<const uint16_t *>(page.address()) : nullptr;
}

PageRef PagePool::copy(const PageRef &page) {
    PageRef copy = take_unset(page.page_->group);
    memory_.copy(memory_.user, copy.address(), page.address(), shape_of(page).bytes());
    copy.page_->unclean = page.page_->unclean;
    return copy;
}

bool PagePool::same(const PageRef &a, const PageRef &b, size_t slots) const {
    const PageShape &shape = shape_of(a);
    PageStaging staging(*this);
    staging.fit(2 * shape.bytes());
    const uint16_t *one = staging.read(a), *other = staging.read(b);
    staging.finish();
    for (size_t row = 0; row < shape.rows(); ++row) {
        if (std::memcmp(one, other, slots * shape.head_dim * kNumberBytes) != 0) {
            return false;
        }
        one += shape.head_elements();
        other += shape.head_elements();
    }
    return true;
}

void PagePool::clear_from(const PageRef &page, size_t slot) const {
    const PageShape &shape = shape_of(page);
    page.page_->unclean = true; // until the memory is cleared
    memory_.clear(memory_.user, page.address(), shape.rows(), shape.head_elements() * kNumberBytes,
                  slot * shape.head_dim * kNumberBytes);
    page.page_->unclean = false;
}

} // namespace stasis
