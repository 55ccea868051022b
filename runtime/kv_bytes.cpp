// The bytes of KV pages, wherever they lie: read, written, copied, cleared; see kv.h. Nothing else
// touches them but a forward pass, which is given their addresses.
#include <cstring>

#include "runtime/kv.h"

namespace stasis {

namespace {

constexpr size_t kNumberBytes = sizeof(uint16_t);

uint16_t *at_least(std::vector<uint16_t> &buffer, size_t count) {
    if (buffer.size() < count) {
        buffer.resize(count);
    }
    return buffer.data();
}

} // namespace

const uint16_t *PagePool::numbers(const PageRef &page) const {
    return memory_.on_host ? reinterpret_cast<const uint16_t *>(page.address()) : nullptr;
}

const uint16_t *PagePool::read(const PageRef &page, size_t begin, size_t count,
                               std::vector<uint16_t> &buffer) const {
    if (memory_.on_host) {
        return numbers(page) + begin;
    }
    uint16_t *to = at_least(buffer, count);
    memory_.read(memory_.user, to, page.address(), begin * kNumberBytes, count * kNumberBytes);
    return to;
}

const uint16_t *PagePool::read(const PageRef &page, std::vector<uint16_t> &buffer) const {
    return read(page, 0, shape_of(page).elements(), buffer);
}

void PagePool::fetch(const PageRef &page, uint16_t *to) const {
    memory_.read(memory_.user, to, page.address(), 0, shape_of(page).bytes());
}

uint16_t *PagePool::stage(const PageRef &page, std::vector<uint16_t> &buffer) const {
    if (memory_.on_host) {
        return reinterpret_cast<uint16_t *>(page.address());
    }
    return at_least(buffer, shape_of(page).elements());
}

void PagePool::store(const PageRef &page, const uint16_t *numbers) const {
    if (!memory_.on_host) {
        memory_.write(memory_.user, page.address(), numbers, shape_of(page).bytes());
    }
}

PageRef PagePool::copy(const PageRef &page) {
    PageRef copy = take_unset(page.page_->group);
    memory_.copy(memory_.user, copy.address(), page.address(), shape_of(page).bytes());
    copy.page_->unclean = page.page_->unclean;
    return copy;
}

bool PagePool::same(const PageRef &a, const PageRef &b, size_t slots) const {
    const PageShape &shape = shape_of(a);
    std::vector<uint16_t> buffers[2];
    const uint16_t *one = read(a, buffers[0]), *other = read(b, buffers[1]);
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
    page.page_->unclean = true; // until it is done
    memory_.clear(memory_.user, page.address(), shape.rows(), shape.head_elements() * kNumberBytes,
                  slot * shape.head_dim * kNumberBytes);
    page.page_->unclean = false;
}

} // namespace stasis
