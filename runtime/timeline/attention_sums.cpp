// Copies, extends and adopts the sums; see attention_sums.h.
#include "runtime/timeline/attention_sums.h"

#include <algorithm>
#include <utility>

#include "runtime/kv/page_pool.h"

namespace stasis {

AttentionSums::Numbers AttentionSums::grown(uint64_t positions) {
    Numbers numbers =
        spare_ != nullptr ? std::move(spare_) : std::make_shared<std::vector<uint64_t>>();
    // The spare is older, so no longer than the numbers: elements past the old numbers are new, and
    // 0.
    numbers->resize((positions + kPage - 1) / kPage * rows_ * kPage);
    if (numbers_ != nullptr) {
        std::copy(numbers_->begin(), numbers_->end(), numbers->begin());
    }
    return numbers;
}

void AttentionSums::adopt(Numbers numbers, uint64_t positions) noexcept {
    end_ = positions;
    spare_ = shared_ ? nullptr : std::move(numbers_);
    numbers_ = std::move(numbers);
    shared_ = false;
}

void AttentionSums::forget() noexcept {
    end_ = 0;
    numbers_ = spare_ = nullptr;
    shared_ = false;
}

uint64_t AttentionSums::at(uint64_t position, size_t row) const {
    return (*numbers_)[(position / kPage * rows_ + row) * kPage + position % kPage];
}

} // namespace stasis
