// A host's data in a host's buffers, for sessions and snapshots alike; see stasis_data.h. Must not
// know either.
#pragma once

#include "abi/stasis.h"
#include "format/state/host_data.h"

namespace stasis::abi {

using SharedData = std::shared_ptr<const HostData>; // null: none

// Copies the bytes under a name. Throws Error(not_found), Error(buffer_too_small).
void copy_value(const SharedData &data, const char *name, void *bytes, size_t capacity,
                size_t *length);
// Lists names and sizes. Throws Error(buffer_too_small).
void list_names(const SharedData &data, stasis_data_entry *entries, size_t stride, size_t capacity,
                size_t *count);

} // namespace stasis::abi
