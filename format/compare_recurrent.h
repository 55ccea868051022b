// The first difference between the recurrent states of two snapshots; see compare.h. Knows files
// only through Snapshot.
#pragma once

#include <optional>

#include "format/compare.h"

namespace stasis::format {

// Compares states at positions that both files list: of the same shape, of one log. Reads numbers
// only of the first two whose digests differ. Its position is that of the last token that the state
// covers; states before it are equal.
std::optional<Difference> compare_states(const Snapshot &a, const Snapshot &b);

} // namespace stasis::format
