// Adds attention received on the host; see received.h.
#include "runtime/kernels/received.h"

#include "runtime/kernels/bf16.h"
#include "runtime/kernels/share.h"
#include "runtime/kernels/table.h"

namespace stasis::kernels {

void add_received(const uint16_t *p, float m_b, float m, float l, uint64_t *received) {
    const double share = share_of(m_b, m, l);
    for (size_t slot = 0; slot < kPagePositions; ++slot) {
        received[slot] += received_of(bf16_to_f32(p[slot]), share);
    }
}

} // namespace stasis::kernels
