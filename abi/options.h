// Versioned structs: those that begin with struct_size, read and written so that an older caller
// works with a newer library and the other way round. Knows no particular struct.
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "abi/boundary.h"

namespace stasis::abi {

// The size that a caller states. Throws Error(invalid_argument) where none can be meant, so that an
// uninitialised struct is refused before anything beyond its first field is touched.
inline uint32_t struct_size(const void *given, size_t expected, const char *name) {
    constexpr uint32_t kLargest = 4096;
    uint32_t size = 0;
    std::memcpy(&size, given, sizeof size);
    if (size < sizeof size || size > kLargest) {
        fail(Status::invalid_argument, "%s.struct_size is %u: expected %zu, the struct's sizeof",
             name, size, expected);
    }
    return size;
}

// The caller's struct in this version's shape: what it does not reach is 0.
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
    // Whole words only: no version of a struct ends within one, and half a pointer must not be
    // used.
    std::memcpy(&own, given, std::min(size_t{size}, sizeof own) / 8 * 8);
    own.struct_size = sizeof own;
    return own;
}

// Fills the caller's struct as far as it reaches; what lies beyond this version's becomes 0.
template <typename Struct> void write_struct(const Struct &own, Struct *given, const char *name) {
    static_assert(std::is_trivially_copyable_v<Struct>);
    const uint32_t size = struct_size(given, sizeof own, name);
    Struct sized = own;
    sized.struct_size = size;
    const size_t known = std::min(size_t{size}, sizeof own);
    std::memcpy(given, &sized, known);
    std::memset(reinterpret_cast<unsigned char *>(given) + known, 0, size - known);
}

// Checks an output struct before the work that fills it.
template <typename Struct> void require_struct(const Struct *given, const char *name) {
    require(given, name);
    struct_size(given, sizeof *given, name);
}

// All defaults in a struct that the caller sees as `size` bytes.
inline void init_struct(void *given, size_t size) {
    if (given == nullptr || size < sizeof(uint32_t)) {
        return;
    }
    const uint32_t stated = static_cast<uint32_t>(std::min<size_t>(size, UINT32_MAX));
    std::memset(given, 0, size);
    std::memcpy(given, &stated, sizeof stated);
}

} // namespace stasis::abi
