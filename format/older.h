// Decides whether a root slot whose checksum is wrong was torn while it was being written, or was
// damaged after its commit had finished (FORMAT.md, "Roots"). Must not choose between roots.
#pragma once

#include "format/header.h"
#include "format/input.h"

namespace stasis::format {

// Returns whether the slot once held the whole root of the commit after `current`. Otherwise a
// crash left it half written, or it holds an earlier commit's root. `block` must be neither zero
// nor have the right checksum.
bool was_finished(const Input &input, const Root &current, const Block &block);

} // namespace stasis::format
