// See received.h. On the host only, as all double precision of the contract.
#include "runtime/kernels/received.h"

#include "runtime/kernels/bf16.h"
#include "runtime/kernels/math.h"
#include "runtime/kernels/table.h"

namespace stasis::kernels {

void add_received(const uint16_t *p, float m_b, float m, float l, uint64_t *received) {
    const double share = exp_f64(double{m_b} - double{m}) / double{l};
    for (size_t slot = 0; slot < kPagePositions; ++slot) {
        const double weight = double{bf16_to_f32(p[slot])} * share * kReceivedOne;
        if (weight >= 1.0 && weight <= kReceivedOne) { // not NaN
            received[slot] += static_cast<uint64_t>(weight);
        }
    }
}

} // namespace stasis::kernels
