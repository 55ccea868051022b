// Removes objects that no session refers to. Must not know what they hold.
#pragma once

#include "format/state/watch.h"
#include "format/store/backend.h"

namespace stasis::format {

struct CollectOptions {
    // Without locks: what a writer that is not ready yet has put, or put again, is younger.
    uint64_t grace_seconds = uint64_t{24} * 3600;
    Watch watch = {}; // progress in objects that are removed
};

struct Collected {
    uint64_t sessions = 0;
    uint64_t objects = 0, bytes = 0; // that there were
    uint64_t removed = 0, removed_bytes = 0;
};

// Marks what all roots refer to, and removes the other objects. Writers may put meanwhile: where
// the backend has locks they wait while objects are removed; without, objects below the grace
// period stay. Throws Error(corrupt), and removes nothing, if a root or a segment is damaged or
// missing: what it names is unknown. Errors of the backend.
Collected collect(Backend &backend, const CollectOptions &options);

} // namespace stasis::format
