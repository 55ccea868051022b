// The contract's own elementary functions (C3): IEEE add, multiply, fma, divide and sqrt only, so
// that every machine and compiler gives the same bits. Accuracy is stated in NUMERICS.md and
// tested against a multiple-precision reference.
#pragma once

namespace stasis::kernels {

// Single precision, as kernels compute it, for sampling. Must run under flush-to-zero (C2).
float exp_f32(float x); // exp_f32(0) is exactly 1; below kExpFloor the result is +0
inline constexpr float kExpFloor = -87.0F;

// Double precision, for RoPE tables, log-probabilities and attention received; on the host (devices
// compile exp_f64.h).
double exp_f64(double x);
double log_f64(double x);           // x > 0
double pow_f64(double x, double y); // x > 0
double sin_f64(double x);           // |x| up to 2^40
double cos_f64(double x);

} // namespace stasis::kernels
