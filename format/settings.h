// Sampling settings in a file: where some allow sets of tokens, the items of a tree, which say what
// each differs in from those before (FORMAT.md, "Settings with sets"). Must not know files.
#pragma once

#include <vector>

#include "format/layout.h"
#include "format/state/state.h"

namespace stasis::format {

// Returns the items of the settings of a state; none if no settings allow a set, or the vocabulary
// is too large, and then the manifest has all of them. Those settings that `before` has at the
// beginning are `known`, and stay as they are.
std::vector<SettingRecord> list_settings(const State &state, const std::vector<Sampling> &before,
                                         const std::vector<SettingRecord> &known);

// Returns the index in the manifest of each.
std::vector<uint32_t> plain_settings(const std::vector<SettingRecord> &settings);

// Makes the state's settings, which are those of the manifest, what the items say. Uses time and
// memory in proportion to the items. Throws Error(corrupt).
void read_settings(const std::vector<SettingRecord> &settings, State &state);

} // namespace stasis::format
