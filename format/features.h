// The features of a state, with which its root tells readers that do not know them what to do
// (FORMAT.md, "Roots"). They follow from the manifest alone.
#pragma once

#include "format/header.h"
#include "format/layout.h"
#include "format/state/state.h"

namespace stasis::format {

// Sets features_read and features_refuse to those of a state; of `state` and `layout` only what
// parse_manifest fills is needed.
void set_features(const State &state, const Layout &layout, Root &root);

// Throws Error(corrupt), naming what disagrees, unless the root has these features. A reader that
// does not know a feature goes by its bit.
void check_features(const State &state, const Layout &layout, const Root &root);

} // namespace stasis::format
