// The attention that each position of a session has received since its beginning (C10): the sums
// and how forks share them. A backend's attention adds to them; an Append decides when they count
// (append.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace stasis {

enum class Tracking : uint32_t { off = 0, total = 1, by_head = 2 };

// The numbers are never changed in place. A growing timeline fills a copy and then adopts it, so
// that forks share the numbers and a failed growth leaves no trace.
class AttentionSums {
  public:
    using Numbers = std::shared_ptr<std::vector<uint64_t>>; // [page][rows][kPagePositions]

    AttentionSums() = default;
    // `heads` counts the heads of all layers together.
    AttentionSums(Tracking tracking, size_t heads)
        : tracking_(tracking), rows_(tracking == Tracking::by_head ? heads : 1) {}
    AttentionSums(const AttentionSums &other)
        : tracking_(other.tracking_), rows_(other.rows_), end_(other.end_),
          numbers_(other.numbers_), shared_(true) {
        other.shared_ = true;
    }
    AttentionSums(AttentionSums &&other) = default;
    AttentionSums &operator=(const AttentionSums &other) = delete;
    AttentionSums &operator=(AttentionSums &&other) = default;

    Tracking tracking() const { return tracking_; }
    size_t rows() const { return rows_; }
    // Reports whether the numbers belong to a log of `positions` positions. If not, the log was cut
    // or loaded, or grew without summation, and the sums must be computed again.
    bool known(uint64_t positions) const { return end_ == positions; }
    // Reports whether an append to such a log adds to the sums.
    bool collecting(uint64_t positions) const {
        return tracking_ != Tracking::off && known(positions);
    }

    // Returns a copy extended to `positions` positions; new elements are 0.
    Numbers grown(uint64_t positions);
    // Adopts a copy as the numbers of a log of `positions` positions. The old numbers are kept for
    // the next copy, unless a fork shares them.
    void adopt(Numbers numbers, uint64_t positions) noexcept;
    // Drops the numbers: they no longer belong to the log.
    void forget() noexcept;
    uint64_t at(uint64_t position, size_t row) const;

  private:
    Tracking tracking_ = Tracking::off;
    size_t rows_ = 1;
    uint64_t end_ = 0; // positions of the log that the numbers belong to
    Numbers numbers_, spare_;
    mutable bool shared_ = false; // another session shares numbers_
};

} // namespace stasis
