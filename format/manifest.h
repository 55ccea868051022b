// The manifest and the model's identity as FlatBuffers bytes (manifest.fbs): all parts of a State
// that do not grow with the log, and references to the rest. Callers must not see FlatBuffers
// types.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "format/layout.h"
#include "format/state/state.h"

namespace stasis::format {

// Both return the buffer's bytes. Both throw Error(unsupported) if it would be larger than
// kManifestBytesMax.
std::vector<uint8_t> build_manifest(const State &state, const Layout &layout);
std::vector<uint8_t> build_identity(const ModelIdentity &identity);

// Fills the parts of `state` that the manifest holds, and `layout`; sizes are not checked yet. Uses
// memory in proportion to the manifest. Throws Error(corrupt).
void parse_manifest(std::span<const uint8_t> manifest, State &state, Layout &layout);
ModelIdentity parse_identity(std::span<const uint8_t> bytes);

} // namespace stasis::format
