// Keeps the list of a session's segments short, as a log-structured merge tree does. Must not know
// what segments hold.
#pragma once

#include "format/store/backend.h"
#include "format/store/records.h"
#include "format/store/segment_sink.h"

namespace stasis::format {

// Appends a segment to those of the root and puts it; merged with those before it where four of
// about the same size have come together, so that each byte is written again once for each power
// of four of the puts. `repair` as of put_segment. Throws Error(corrupt) if one of these is damaged
// or missing, Error(io).
void add_merged(Backend &backend, StoredRoot &root, Segment segment, PutCounts &counts, bool repair,
                const Watch &watch);

} // namespace stasis::format
