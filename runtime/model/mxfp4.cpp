// Reorders the elements of blocks; see mxfp4.h.
#include "runtime/model/mxfp4.h"

namespace stasis {

void pack_mxfp4(const uint8_t *blocks, const uint8_t *scales, size_t count, uint8_t *out) {
    for (size_t block = 0; block < count; ++block, blocks += 16, out += 17) {
        out[0] = scales[block];
        for (size_t i = 0; i < 16; ++i) {
            const auto element = [&](size_t at) { return blocks[at / 2] >> at % 2 * 4 & 15; };
            out[1 + i] = static_cast<uint8_t>(element(i) | element(i + 16) << 4);
        }
    }
}

} // namespace stasis
