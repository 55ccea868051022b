// Memory between two pages that may not be touched: what reads or writes one element too far, on
// either side, ends the program there.
#pragma once

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

enum class Edge { front, back };
inline constexpr Edge kEdges[] = {Edge::front, Edge::back};

// An array that begins right after a forbidden page (front) or ends right before one (back), but
// for the gap that an alignment greater than T's may need.
template <typename T> class Guarded {
  public:
    Guarded(const std::vector<T> &values, Edge edge, size_t alignment = sizeof(T))
        : count_(values.size()) {
        const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        const size_t size_bytes = (count_ * sizeof(T) + alignment - 1) / alignment * alignment;
        const size_t inner = (size_bytes + page - 1) / page * page;
        mapped_bytes_ = inner + 2 * page;
        mapped_ = static_cast<char *>(mmap(nullptr, mapped_bytes_, PROT_NONE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        REQUIRE(mapped_ != MAP_FAILED);
        REQUIRE((inner == 0 || mprotect(mapped_ + page, inner, PROT_READ | PROT_WRITE) == 0));
        char *begin = mapped_ + page + (edge == Edge::back ? inner - size_bytes : 0);
        data_ = reinterpret_cast<T *>(begin);
        if (count_ > 0) {
            std::memcpy(data_, values.data(), count_ * sizeof(T));
        }
    }
    ~Guarded() { munmap(mapped_, mapped_bytes_); }
    Guarded(const Guarded &) = delete;
    Guarded &operator=(const Guarded &) = delete;

    T *data() const { return data_; }
    std::vector<T> values() const { return std::vector<T>(data_, data_ + count_); }

  private:
    size_t count_, mapped_bytes_;
    char *mapped_;
    T *data_;
};
