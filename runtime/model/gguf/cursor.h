// Reads the little-endian numbers and strings of a GGUF file in sequence. Every read is checked
// against the end, so that a wrong count or length is an error and never a stray read.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "format/state/error.h"
#include "runtime/model/gguf/gguf.h"

namespace stasis {

class GgufCursor {
  public:
    // `unread_bytes` more bytes of the file follow `data`.
    GgufCursor(const uint8_t *data, size_t size_bytes, const std::string &file,
               uint64_t unread_bytes = 0)
        : data_(data), size_bytes_(size_bytes), unread_bytes_(unread_bytes), file_(file) {}

    template <typename Number> Number number() {
        static_assert(std::endian::native == std::endian::little);
        Number value;
        std::memcpy(&value, skip(sizeof value), sizeof value);
        return value;
    }

    // Reads a length, then that many bytes.
    std::string_view text() {
        const auto size = number<uint64_t>();
        return {reinterpret_cast<const char *>(skip(size)), static_cast<size_t>(size)};
    }

    const uint8_t *skip(uint64_t count) {
        if (count > rest_bytes()) {
            fail(Status::corrupt,
                 "%s: %llu bytes are wanted at byte %zu, %llu are left (is it cut short?)",
                 file_.c_str(), static_cast<Number>(count), at_, static_cast<Number>(rest_bytes()));
        }
        if (count > size_bytes_ - at_) {
            throw GgufHeadEnds{at_ + count};
        }
        const uint8_t *begin = data_ + at_;
        at_ += static_cast<size_t>(count);
        return begin;
    }

    size_t at() const { return at_; }
    uint64_t rest_bytes() const { return size_bytes_ - at_ + unread_bytes_; }
    const std::string &file() const { return file_; }

    // Throws Error(corrupt) naming the file and the offset.
    [[noreturn]] void corrupt(const std::string &what) const {
        fail(Status::corrupt, "%s: %s (at byte %zu)", file_.c_str(), what.c_str(), at_);
    }

  private:
    const uint8_t *data_;
    size_t size_bytes_, at_ = 0;
    uint64_t unread_bytes_;
    const std::string &file_;
};

} // namespace stasis
