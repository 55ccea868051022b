// Destination and origin of the stream form of a snapshot (FORMAT.md, "Stream form"): pipes,
// sockets, memory, a host's storage. Plain data. Must not know what the bytes mean.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stasis::format {

struct Sink {
    void *user = nullptr;
    // Writes all `size_bytes`, or throws Error.
    void (*write)(void *user, const void *data, size_t size_bytes) = nullptr;
    // Null, or: writes the bytes that the lender of the save (SaveOptions::lender) has from this
    // offset on, the stored bytes of a section. Throws Error.
    void (*lend)(void *user, uint64_t offset, uint64_t size_bytes) = nullptr;
    // Null, or: told between two sections that what was written so far is likely to be written by
    // others too, who begin in the same way.
    void (*cut)(void *user) = nullptr;
};

struct Source {
    void *user = nullptr;
    // Waits for at least one byte, stores at most `size_bytes` and returns their number; 0 at the
    // end. May throw Error.
    size_t (*read)(void *user, void *data, size_t size_bytes) = nullptr;
};

} // namespace stasis::format
