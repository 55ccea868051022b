// Versioned structs, which begin with struct_size: read and written so that an older caller works
// with a newer library and a newer caller with an older library. Must not know any particular
// struct.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstring>
#include <type_traits>

#include "abi/boundary.h"

namespace stasis::abi {

// Returns the size that a caller states. Throws Error(invalid_argument) if no struct can have it,
// so that an uninitialised struct is refused before anything after its first field is read.
inline uint32_t struct_size(const void *given, size_t expected, const char *name) {
    constexpr uint32_t kLargest = 4096;
    assert(given != nullptr);
    uint32_t size = 0;
    std::memcpy(&size, given, sizeof size);
    if (size < sizeof size || size > kLargest) {
        fail(Status::invalid_argument, "%s.struct_size is %u: expected %zu, the struct's sizeof",
             name, size, expected);
    }
    return size;
}

// Returns the caller's struct in the shape of this version; fields that the caller's does not have
// are 0. A null `given` has all fields 0. Throws Error(unsupported) if a byte after the fields of
// this version is not 0.
template <typename Struct> Struct read_struct(const Struct *given, const char *name) {
    static_assert(std::is_trivially_copyable_v<Struct> && alignof(Struct) == 8);
    Struct own{};
    if (given == nullptr) {
        return own;
    }
    const uint32_t size = struct_size(given, sizeof own, name);
    const auto *bytes = reinterpret_cast<const unsigned char *>(given);
    for (size_t i = sizeof own; i < size; ++i) {
        if (bytes[i] != 0) {
            fail(Status::unsupported,
                 "%s.struct_size is %u: this version knows %zu bytes, and byte %zu is not 0", name,
                 size, sizeof own, i);
        }
    }
    // Whole words only: no version of a struct ends within a word, and half a pointer must not be
    // used.
    std::memcpy(&own, given, std::min(size_t{size}, sizeof own) / 8 * 8);
    own.struct_size = sizeof own;
    return own;
}

// Copies `own` into the caller's struct, up to the size that it states. Bytes after the fields of
// this version become 0.
template <typename Struct> void write_struct(const Struct &own, Struct *given, const char *name) {
    static_assert(std::is_trivially_copyable_v<Struct>);
    const uint32_t size = struct_size(given, sizeof own, name);
    Struct sized = own;
    sized.struct_size = size;
    const size_t known = std::min(size_t{size}, sizeof own);
    std::memcpy(given, &sized, known);
    std::memset(reinterpret_cast<unsigned char *>(given) + known, 0, size - known);
}

// Checks the distance between the elements of an output array. Throws Error(invalid_argument) for
// one that no version of the struct has.
template <typename Struct> void require_stride(size_t stride) {
    if (stride < sizeof(uint64_t) || stride % alignof(Struct) != 0 || stride > UINT32_MAX) {
        fail(Status::invalid_argument, "stride is %zu, expected %zu", stride, sizeof(Struct));
    }
}

// Copies `own` into element `i` of such an array. Bytes after the fields of this version become 0.
template <typename Struct>
void write_element(const Struct &own, void *array, size_t stride, size_t i) {
    static_assert(std::is_trivially_copyable_v<Struct>);
    Struct sized = own;
    sized.struct_size = static_cast<uint32_t>(stride);
    const size_t known = std::min(stride, sizeof own);
    auto *to = static_cast<unsigned char *>(array) + i * stride;
    std::memcpy(to, &sized, known);
    std::memset(to + known, 0, stride - known);
}

// Checks an output struct before the work that fills it. Throws Error(invalid_argument).
template <typename Struct> void require_struct(const Struct *given, const char *name) {
    require(given, name);
    struct_size(given, sizeof *given, name);
}

// Writes all defaults into a struct of `size` bytes in the caller's version. Does nothing if
// `given` is null or no struct_size fits.
inline void init_struct(void *given, size_t size) {
    if (given == nullptr || size < sizeof(uint32_t)) {
        return;
    }
    const uint32_t stated = static_cast<uint32_t>(std::min<size_t>(size, UINT32_MAX));
    std::memset(given, 0, size);
    std::memcpy(given, &stated, sizeof stated);
}

} // namespace stasis::abi
