// One timeline's part of a count of KV bytes that all timelines of a model share. A page is counted
// once for every timeline that holds it. A copy counts as much as the original.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace stasis {

class HeldBytes {
  public:
    explicit HeldBytes(std::atomic<uint64_t> &total) : total_(&total) {}
    HeldBytes(const HeldBytes &other) : total_(other.total_), bytes_(other.bytes_) {
        *total_ += bytes_;
    }
    HeldBytes(HeldBytes &&other) noexcept
        : total_(other.total_), bytes_(std::exchange(other.bytes_, 0)) {}
    HeldBytes &operator=(HeldBytes other) noexcept {
        std::swap(total_, other.total_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~HeldBytes() { *total_ -= bytes_; }

    void set(uint64_t bytes) noexcept {
        *total_ += bytes - bytes_;
        bytes_ = bytes;
    }

  private:
    std::atomic<uint64_t> *total_;
    uint64_t bytes_ = 0;
};

} // namespace stasis
