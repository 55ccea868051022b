// Cuts a stream of sections into payloads, which it puts into the store, and segments. Must not
// know roots.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "format/parallel.h"
#include "format/state/watch.h"
#include "format/store/backend.h"
#include "format/store/ranges.h"
#include "format/store/records.h"
#include "format/stream.h"

namespace stasis::format {

// What a put has written: objects that were not there, and payloads that were.
struct PutCounts {
    uint64_t written = 0;
    uint64_t shared = 0;
};

class SegmentSink {
  public:
    // `begin`: of the first section, in the virtual file. `repair`: payloads that are there are
    // read, and put again if they are damaged. `lender`: of the sections that are lent, or null;
    // payloads that a root names are on the disk, and are only asked for.
    SegmentSink(Backend &backend, uint64_t begin, const Parallel &parallel, const Watch &watch,
                bool repair, const StoredRanges *lender = nullptr);

    // Takes whole sections in any pieces. Payloads are put several at once, on the caller's
    // threads, when some tens of megabytes of them have come together.
    Sink sink() { return {this, write, lend, cut}; }
    // Puts what is left but the last segment, which the caller may merge with others before it
    // is put. Throws Error(corrupt) if the last section is not whole.
    Segment finish();
    const std::vector<SegmentRef> &segments() const { return segments_; } // that were put
    const PutCounts &counts() const { return counts_; }

  private:
    static void write(void *user, const void *data, size_t size_bytes);
    static void lend(void *user, uint64_t offset, uint64_t size_bytes);
    static void cut(void *user);
    size_t take(const uint8_t *data, size_t size_bytes);
    void begin_section();
    void end_piece();
    void put_payloads();
    void end_segment();

    Backend &backend_;
    const Parallel parallel_;
    const Watch watch_;
    const bool repair_;
    const bool anew_; // a whole virtual file, whose segments others may have put, damaged by now
    const StoredRanges *const lender_;
    Segment segment_;
    std::vector<SegmentRef> segments_;
    PutCounts counts_;

    // Of the section that is coming: first its frame, then stored bytes, then padding.
    Bytes frame_;
    uint64_t stored_ = 0, padding_ = 0; // still to come
    bool payload_ = false;
    Bytes piece_; // of its payload

    std::vector<Bytes> pending_; // of the segment's last extents
    size_t pending_bytes_ = 0;
};

// Puts a segment and returns what a root says of it; adds to the counts. With `repair` also where
// its object is there and damaged.
SegmentRef put_segment(Backend &backend, const Segment &segment, PutCounts &counts, bool repair,
                       const Watch &watch);

} // namespace stasis::format
