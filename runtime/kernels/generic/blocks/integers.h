// The vectors of integers that products use, by the instruction set of the translation unit.
#pragma once

#if defined(__AVX512VNNI__)
#include "runtime/kernels/avx512vnni/integers.h"
#elif defined(__AVX512F__)
#include "runtime/kernels/avx512/integers.h"
#else
#include "runtime/kernels/avx2/integers.h"
#endif

namespace stasis::kernels::STASIS_TABLE {
#if defined(__AVX512VNNI__)
using Integers = Avx512Vnni;
#elif defined(__AVX512F__)
using Integers = Avx512Integers;
#else
using Integers = Avx2Integers;
#endif
} // namespace stasis::kernels::STASIS_TABLE
