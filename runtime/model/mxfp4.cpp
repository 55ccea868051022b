// Reorders the elements of blocks; see mxfp4.h.
#include "runtime/model/mxfp4.h"

namespace stasis {

void pack_mxfp4(const uint8_t *blocks, const uint8_t *scales, size_t count, uint8_t *out) {
    for (size_t block = 0; block < count; ++block, blocks += 16, out += 17) {
        out[0] = scales[block];
        for (size_t i = 0; i < 8; ++i) { // elements 2 i and 2 i + 1, and 16 after them
            const unsigned lower = blocks[i], upper = blocks[i + 8];
            out[1 + 2 * i] = static_cast<uint8_t>((lower & 0x0F) | upper << 4);
            out[2 + 2 * i] = static_cast<uint8_t>(lower >> 4 | (upper & 0xF0));
        }
    }
}

} // namespace stasis
