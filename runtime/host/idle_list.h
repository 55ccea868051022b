// Objects that calls use one after another, so that a warm call allocates nothing. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace stasis {

template <typename Object> class IdleList {
  public:
    static constexpr size_t kMost = 16;

    IdleList() { idle_.reserve(kMost); } // so that give() cannot fail

    // Returns the object given last, or null if there is none.
    std::unique_ptr<Object> take() {
        std::lock_guard lock(mutex_);
        if (idle_.empty()) {
            return nullptr;
        }
        std::unique_ptr<Object> object = std::move(idle_.back());
        idle_.pop_back();
        return object;
    }

    // Keeps the object, or destroys it if there are kMost already.
    void give(std::unique_ptr<Object> object) noexcept {
        std::lock_guard lock(mutex_);
        if (idle_.size() < kMost) {
            idle_.push_back(std::move(object));
        }
    }

    // Returns the sum of size_bytes() over the objects that are idle.
    uint64_t size_bytes() const {
        std::lock_guard lock(mutex_);
        uint64_t sum = 0;
        for (const auto &object : idle_) {
            sum += object->size_bytes();
        }
        return sum;
    }

  private:
    mutable std::mutex mutex_;
    std::vector<std::unique_ptr<Object>> idle_;
};

} // namespace stasis
