// The manifest: all of a State but its bulk, and the layout of the file, as FlatBuffers bytes
// (manifest.fbs). FlatBuffers types stay behind these two functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "format/layout.h"
#include "format/state.h"

namespace stasis::format {

// Throws Error(unsupported) if it would be larger than kManifestBytesMax.
std::vector<uint8_t> build_manifest(const State &state, const Layout &layout);

// Fills the parts of `state` that the manifest holds, pages without data, and `layout`; neither
// log, texts nor hidden state. Sizes are checked before they are used, with check_geometry; the
// rest is check_state's and check_layout's. Memory used is proportional to the manifest. Throws
// Error(corrupt).
void parse_manifest(std::span<const uint8_t> manifest, State &state, Layout &layout);

} // namespace stasis::format
