// The parts of a file outside its state: the number of dead bytes, and the checksums of all
// sections, whether or not the state refers to them.
#pragma once

#include "format/reader.h"

namespace stasis::format {

// Returns the bytes of sections, up to the end of the state, that the state does not refer to. No
// reader of the state uses them. Reads frames. Throws Error(corrupt), Error(io).
uint64_t dead_bytes(const Snapshot &snapshot);

// Checks both root slots and every section up to the end of the state, in the order of the file:
// frames, padding and the checksums of raw bytes. Returns the number of sections. Checks the watch
// for a cancel request and reports no progress. Throws Error(corrupt), Error(io), Error(cancelled).
uint64_t check_all_sections(const Snapshot &snapshot, const Watch &watch);

} // namespace stasis::format
