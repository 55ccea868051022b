// Where the stream form of a snapshot goes and comes from (FORMAT.md, "Stream form"): pipes,
// sockets, memory, a host's storage. Plain data; knows nothing of the bytes.
#pragma once

#include <cstddef>

namespace stasis::format {

struct Sink {
    void *user = nullptr;
    // Takes all `size_bytes` or throws Error.
    void (*write)(void *user, const void *data, size_t size_bytes) = nullptr;
};

struct Source {
    void *user = nullptr;
    // Waits for at least one byte and gives at most `size_bytes`; 0: the end. May throw Error.
    size_t (*read)(void *user, void *data, size_t size_bytes) = nullptr;
};

} // namespace stasis::format
