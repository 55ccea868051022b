// Page memory that is far from the host, for tests: any access except through its own functions
// ends the program, because its addresses are in a protected mapping and the functions use another
// mapping of the same memory. It holds garbage (bf16 NaN) where nothing was written, checks that no
// access exceeds a page and no page is returned twice, and fails on demand.
#pragma once

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/kv/page_memory.h"

namespace stasis::test {

class FarMemory {
  public:
    enum Call { kTake, kClear, kCopy, kRead, kWrite, kCalls };
    // Whether the CPU's kernels may work on it, which stand in for a device's.
    enum class Reach { nobody, kernels };

    explicit FarMemory(Reach reach) {
        const int file = memfd_create("far", MFD_CLOEXEC);
        REQUIRE(file >= 0);
        REQUIRE(ftruncate(file, kBytes) == 0);
        inside_ = map(file, PROT_READ | PROT_WRITE);
        outside_ = map(file, PROT_NONE);
        allow(reach == Reach::kernels);
        close(file);
        for (std::atomic<int64_t> &each : until_) {
            each = -1;
        }
    }
    // After the model that used it.
    ~FarMemory() {
        CHECK(taken_.empty());
        CHECK(stages_ == 0);
        CHECK(wrong_ == 0);
        munmap(inside_, kBytes);
        munmap(outside_, kBytes);
    }
    FarMemory(const FarMemory &) = delete;
    FarMemory &operator=(const FarMemory &) = delete;

    const PageMemory *functions() const { return &functions_; }
    // Allows access by kernels from now on, or by none.
    void allow(bool kernels) {
        REQUIRE(mprotect(outside_, kBytes, kernels ? PROT_READ | PROT_WRITE : PROT_NONE) == 0);
    }
    // The n-th call of a kind from now on (from 0) fails, or from then on all of that kind.
    void fail(Call call, int64_t n, bool for_good = false) {
        failed_ = false;
        for_good_ = for_good;
        until_[call] = n;
    }
    // Nothing fails from now on. Returns whether anything did since `fail`.
    bool stop_failing() {
        for (std::atomic<int64_t> &each : until_) {
            each = -1;
        }
        return failed_;
    }
    uint64_t count(Call call) const { return counts_[call]; }
    size_t pages() const { return taken_.size(); }
    uint64_t taken_bytes() const {
        uint64_t bytes = 0;
        for (const auto &[offset, size_bytes] : taken_) {
            bytes += size_bytes;
        }
        return bytes;
    }

  private:
    static constexpr size_t kBytes = size_t{1} << 30; // of addresses; memory is as much as is used
    static constexpr int kGarbage = 0xFF;

    static uint8_t *map(int file, int protection) {
        void *memory = mmap(nullptr, kBytes, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
        REQUIRE(memory != MAP_FAILED);
        return static_cast<uint8_t *>(memory);
    }
    static FarMemory &self(void *user) { return *static_cast<FarMemory *>(user); }

    // The bytes of a page; counts a request that is not within one.
    uint8_t *at(PageAddress address, size_t end_bytes) {
        const std::lock_guard lock(mutex_);
        const size_t offset =
            static_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(outside_);
        const auto found = taken_.find(offset);
        wrong_ += found == taken_.end() || end_bytes > found->second ? 1 : 0;
        return inside_ + offset;
    }
    // The destination of a failed call is garbage.
    void enter(Call call, void *written, size_t rows, size_t row_bytes, size_t from_bytes) {
        ++counts_[call];
        const int64_t left = until_[call].load() < 0 ? -1 : until_[call]--;
        if (left != 0) {
            return;
        }
        until_[call] = for_good_ ? 0 : -1;
        failed_ = true;
        auto *row = static_cast<uint8_t *>(written);
        for (size_t i = 0; i < rows; ++i, row += row_bytes) {
            std::memset(row + from_bytes, kGarbage, row_bytes - from_bytes);
        }
        static const std::array<const char *, kCalls> names = {"take", "clear", "copy", "read",
                                                               "write"};
        stasis::fail(call == kTake ? Status::no_memory : Status::device, "far memory: %s failed",
                     names[call]);
    }

    static PageAddress take(void *user, size_t size_bytes) {
        FarMemory &own = self(user);
        own.enter(kTake, nullptr, 0, 0, 0);
        const std::lock_guard lock(own.mutex_);
        size_t offset = own.end_;
        if (std::vector<size_t> &free = own.free_[size_bytes]; !free.empty()) {
            offset = free.back();
            free.pop_back();
        } else {
            own.end_ += (size_bytes + 63) / 64 * 64;
            REQUIRE(own.end_ <= kBytes);
        }
        own.taken_[offset] = size_bytes;
        std::memset(own.inside_ + offset, kGarbage, size_bytes);
        return PageAddress{reinterpret_cast<uintptr_t>(own.outside_ + offset)};
    }
    static void give_back(void *user, PageAddress address, size_t size_bytes) noexcept {
        FarMemory &own = self(user);
        std::memset(own.at(address, size_bytes), kGarbage, size_bytes);
        const std::lock_guard lock(own.mutex_);
        const size_t offset =
            static_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(own.outside_);
        own.wrong_ += own.taken_[offset] != size_bytes ? 1 : 0;
        own.taken_.erase(offset);
        own.free_[size_bytes].push_back(offset);
    }
    static void clear(void *user, PageAddress address, size_t rows, size_t row_bytes,
                      size_t from_bytes) {
        uint8_t *row = self(user).at(address, rows * row_bytes);
        self(user).enter(kClear, row, rows, row_bytes, from_bytes);
        for (size_t i = 0; i < rows; ++i, row += row_bytes) {
            std::memset(row + from_bytes, 0, row_bytes - from_bytes);
        }
    }
    static void copy(void *user, PageAddress to, PageAddress from, size_t size_bytes) {
        uint8_t *written = self(user).at(to, size_bytes);
        self(user).enter(kCopy, written, 1, size_bytes, 0);
        std::memcpy(written, self(user).at(from, size_bytes), size_bytes);
    }
    // A stage, and what is to be done when it is waited for: not before, so that what is used too
    // early, or used again too early, has the wrong bytes.
    struct Stage : PageStage {
        std::vector<uint8_t> bytes;
        std::vector<std::function<void()>> under_way;
    };
    static Stage &of(PageStage *stage) { return *static_cast<Stage *>(stage); }
    static PageStage *take_stage(void *user, size_t size_bytes) {
        auto *stage = new Stage;
        stage->bytes.assign(size_bytes, kGarbage);
        stage->data = stage->bytes.data();
        stage->size_bytes = size_bytes;
        ++self(user).stages_;
        return stage;
    }
    static void give_back_stage(void *user, PageStage *stage) noexcept {
        --self(user).stages_;
        delete &of(stage); // what is under way never came to be
    }
    static void read(void *user, PageStage *stage, size_t at_bytes, PageAddress from,
                     size_t offset_bytes, size_t size_bytes) {
        FarMemory &own = self(user);
        own.wrong_ += at_bytes + size_bytes > stage->size_bytes ? 1 : 0;
        own.at(from, offset_bytes + size_bytes);
        std::memset(stage->data + at_bytes, kGarbage, size_bytes);
        of(stage).under_way.push_back([=, &own] {
            uint8_t *to = stage->data + at_bytes;
            own.enter(kRead, to, 1, size_bytes, 0);
            std::memcpy(to, own.at(from, offset_bytes + size_bytes) + offset_bytes, size_bytes);
        });
    }
    static void write(void *user, PageStage *stage, size_t at_bytes, PageAddress to,
                      size_t size_bytes) {
        FarMemory &own = self(user);
        own.wrong_ += at_bytes + size_bytes > stage->size_bytes ? 1 : 0;
        own.at(to, size_bytes);
        of(stage).under_way.push_back([=, &own] {
            uint8_t *written = own.at(to, size_bytes);
            own.enter(kWrite, written, 1, size_bytes, 0);
            std::memcpy(written, stage->data + at_bytes, size_bytes);
        });
    }
    static void finish(void *, PageStage *stage) {
        const auto under_way = std::exchange(of(stage).under_way, {});
        for (const std::function<void()> &each : under_way) {
            each();
        }
    }

    static constexpr size_t kBatchBytes = 10000; // a page, of small models two

    const PageMemory functions_ = {this, false,      kBatchBytes,     take, give_back, clear,
                                   copy, take_stage, give_back_stage, read, write,     finish};
    uint8_t *inside_ = nullptr, *outside_ = nullptr;
    std::mutex mutex_;
    size_t end_ = 0;
    std::map<size_t, size_t> taken_;             // offset to size
    std::map<size_t, std::vector<size_t>> free_; // size to offsets
    std::atomic<uint64_t> wrong_{0}, stages_{0};
    std::array<std::atomic<uint64_t>, kCalls> counts_ = {};
    std::array<std::atomic<int64_t>, kCalls> until_ = {};
    std::atomic<bool> failed_{false};
    bool for_good_ = false;
};

} // namespace stasis::test
