// What a root slot whose checksum is wrong has been: torn in the midst of being written, or damaged
// after a commit was finished (FORMAT.md, "Roots"). Knows no way to choose between roots.
#pragma once

#include "format/header.h"
#include "format/input.h"

namespace stasis::format {

// Whether the slot once held the whole root of the commit after `current`; else a crash left it
// half written, or it is that of a commit before. `block`: neither zero nor with the right
// checksum.
bool was_finished(const Input &input, const Root &current, const Block &block);

} // namespace stasis::format
