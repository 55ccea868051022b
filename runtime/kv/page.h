// The size of a KV page, in positions. What a page holds is page_pool.h's.
#pragma once

#include <cstdint>

#include "runtime/kernels/table.h"

namespace stasis {

// The kernels' constant, as wide as positions are. The folders after runtime/kernels/ use this
// name.
inline constexpr uint64_t kPage = kernels::kPagePositions;

} // namespace stasis
