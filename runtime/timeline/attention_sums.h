// How much attention each position of a session has received since its beginning (C10): the numbers
// and who shares them. Attention adds to them (compute/attention.cpp); an Append decides when they
// count (append.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace stasis {

enum class Tracking : uint32_t { off = 0, total = 1, by_head = 2 };

// Numbers are never changed in place: who grows fills a copy and puts it in place of them, so that
// forks share them and a growth that fails leaves no trace.
class AttentionSums {
  public:
    using Numbers = std::shared_ptr<std::vector<uint64_t>>; // [page][rows][kPagePositions]

    AttentionSums() = default;
    // `heads` of all layers together.
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
    // Whether the numbers tell of a log of so many positions. If not, it was cut or loaded, or grew
    // without adding up, and has to be computed again to tell.
    bool known(uint64_t positions) const { return end_ == positions; }
    // Whether what is appended to such a log is to be added up.
    bool collecting(uint64_t positions) const {
        return tracking_ != Tracking::off && known(positions);
    }

    // A copy with room for so many positions, 0 where it is new.
    Numbers grown(uint64_t positions);
    // What a copy has become, which tells of a log of so many positions. The numbers so far are
    // kept for the next copy, unless a fork has them.
    void adopt(Numbers numbers, uint64_t positions) noexcept;
    // The log is no longer what the numbers tell of.
    void forget() noexcept;
    uint64_t at(uint64_t position, size_t row) const;

  private:
    Tracking tracking_ = Tracking::off;
    size_t rows_ = 1;
    uint64_t end_ = 0; // positions that the numbers tell of
    Numbers numbers_, spare_;
    mutable bool shared_ = false; // numbers_, with another session
};

} // namespace stasis
