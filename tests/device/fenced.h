// Numbers in a device's memory that a kernel may write, between others that it may not.
#pragma once

#include "tests/device/under_test.h"

namespace under_test {

// Starts from the values given; the fences, of 64 elements on either side, hold a pattern.
template <typename T> class Fenced {
  public:
    Fenced(const Opened &on, const std::vector<T> &values)
        : all_(on, fenced(values)), count_(values.size()) {}

    T *get() const { return all_.get() + kFence; }

    // Returns the contents; the fences must be intact.
    std::vector<T> values() const {
        const std::vector<T> all = all_.values();
        const std::vector<T> fence(kFence, pattern());
        const size_t fence_bytes = kFence * sizeof(T);
        CHECK(std::memcmp(all.data(), fence.data(), fence_bytes) == 0);
        CHECK(std::memcmp(all.data() + kFence + count_, fence.data(), fence_bytes) == 0);
        return std::vector<T>(all.begin() + kFence, all.begin() + kFence + count_);
    }

  private:
    static constexpr long kFence = 64; // keeps the alignment that tasks ask for

    static T pattern() {
        T value;
        std::memset(&value, 0x5A, sizeof value);
        return value;
    }
    static std::vector<T> fenced(const std::vector<T> &values) {
        std::vector<T> all(kFence, pattern());
        all.insert(all.end(), values.begin(), values.end());
        all.insert(all.end(), kFence, pattern());
        return all;
    }

    There<T> all_;
    size_t count_;
};

} // namespace under_test
