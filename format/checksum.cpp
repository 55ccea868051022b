// XXH3 with the default secret and seed 0; see checksum.h.
#include "format/checksum.h"

#if defined(__x86_64__)
#include <xxh_x86dispatch.h> // the same functions, by the widest instructions that the CPU has
#else
#include <xxhash.h>
#endif

namespace stasis::format {

Checksum checksum(const void *data, size_t size_bytes) {
    const XXH128_hash_t hash = XXH3_128bits(data, size_bytes);
    return {hash.low64, hash.high64};
}

uint64_t checksum64(const void *data, size_t size_bytes) {
    return XXH3_64bits(data, size_bytes);
}

} // namespace stasis::format
