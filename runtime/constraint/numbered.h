// Numbers lists by their contents: equal lists have one number, counted from 0 in the order in
// which they come, so that nothing depends on the order of a hash table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

namespace stasis::constraint {

template <typename Entry> class Numbered {
  public:
    Numbered() : found_(16, Hash{this}, Equal{this}) {}
    Numbered(const Numbered &) = delete;
    Numbered &operator=(const Numbered &) = delete;

    uint32_t number_of(std::vector<Entry> entries) {
        lists_.push_back(std::move(entries));
        const auto number = static_cast<uint32_t>(lists_.size() - 1);
        try {
            const uint32_t found = *found_.insert(number).first;
            if (found != number) {
                lists_.pop_back();
            }
            return found;
        } catch (...) {
            lists_.pop_back();
            throw;
        }
    }
    const std::vector<Entry> &entries(uint32_t number) const { return lists_[number]; }
    uint32_t size() const { return static_cast<uint32_t>(lists_.size()); }

  private:
    static uint64_t value(uint32_t entry) { return entry; }
    static uint64_t value(const std::pair<uint32_t, uint32_t> &entry) {
        return uint64_t{entry.first} << 32U | entry.second;
    }
    struct Hash {
        const Numbered *owner;
        size_t operator()(uint32_t number) const {
            uint64_t hash = 0x9E3779B97F4A7C15U;
            for (const Entry &each : owner->lists_[number]) {
                hash = (hash ^ value(each)) * 0xD6E8FEB86659FD93U;
                hash ^= hash >> 32U;
            }
            return hash;
        }
    };
    struct Equal {
        const Numbered *owner;
        bool operator()(uint32_t left, uint32_t right) const {
            return owner->lists_[left] == owner->lists_[right];
        }
    };
    std::vector<std::vector<Entry>> lists_;
    std::unordered_set<uint32_t, Hash, Equal> found_;
};

} // namespace stasis::constraint
