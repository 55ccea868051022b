// The manifest and the model's identity as FlatBuffers bytes (manifest.fbs): all of a State that
// does not grow with the log, and where the rest lies. FlatBuffers types stay behind these
// functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "format/layout.h"
#include "format/state/state.h"

namespace stasis::format {

// Throws Error(unsupported) if it would be larger than kManifestBytesMax.
std::vector<uint8_t> build_manifest(const State &state, const Layout &layout);
std::vector<uint8_t> build_identity(const ModelIdentity &identity);

// Fills the parts of `state` that the manifest holds, and `layout`; the sizes are not checked yet.
// Memory used is proportional to the manifest. Throws Error(corrupt).
void parse_manifest(std::span<const uint8_t> manifest, State &state, Layout &layout);
ModelIdentity parse_identity(std::span<const uint8_t> bytes);

} // namespace stasis::format
