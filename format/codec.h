// How the numbers of a KV run are stored (FORMAT.md, "Codecs").
#pragma once

#include <cstdint>

namespace stasis::format {

enum class Codec : uint32_t { raw = 0, zstd = 1 };

} // namespace stasis::format
