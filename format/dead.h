// What a file holds beside its state: dead bytes, and the checksums of all sections, whether or not
// the state reaches them.
#pragma once

#include "format/reader.h"

namespace stasis::format {

// Bytes of sections up to the end of the state that it does not refer to: no reader of the state
// looks at them. Reads frames.
uint64_t dead_bytes(const Snapshot &snapshot);

// Checks both root slots and every section up to the end of the state, read one behind the other:
// frames, padding and the checksums of raw bytes. Returns how many there are. Looks at the watch's
// cancel; its progress belongs to others. Error(corrupt).
uint64_t check_all_sections(const Snapshot &snapshot, const Watch &watch);

} // namespace stasis::format
