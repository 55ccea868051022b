// The floating-point environment of the contract (C2): round to nearest, flush-to-zero and
// denormals-are-zero on, exceptions masked. Knows no kernels.
#pragma once

#include <cstdint>

namespace stasis::kernels {

// Enters the contract's environment; the destructor restores the thread's own, bit for bit.
class FloatEnvironment {
  public:
    FloatEnvironment();
    ~FloatEnvironment();
    FloatEnvironment(const FloatEnvironment &) = delete;
    FloatEnvironment &operator=(const FloatEnvironment &) = delete;

  private:
    uint32_t saved_;
};

} // namespace stasis::kernels
