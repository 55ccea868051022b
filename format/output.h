// The output of a save: appends sections to a file or a stream and gathers small ones into larger
// writes. Must not know what sections hold.
#pragma once

#include <cassert>
#include <cstdint>
#include <vector>

#include "format/layout.h"
#include "format/section.h"
#include "format/state/watch.h"
#include "format/stream.h"

namespace stasis::format {

class Output {
  public:
    // `next` is the offset of the first byte that is written, a multiple of 64. Progress is
    // reported in raw bytes of runs and recurrent states.
    Output(const Sink &sink, uint64_t next, uint64_t sequence, const Watch &watch)
        : sink_(sink), next_(next), sequence_(sequence), watch_(watch) {
        assert(next % kAlignment == 0);
    }
    Output(const Output &) = delete;
    Output &operator=(const Output &) = delete;

    uint64_t next() const { return next_; } // offset of the next section
    uint64_t sequence() const { return sequence_; }
    // Adds to the total of the progress: raw bytes of runs or states that will be appended.
    void expect(uint64_t bytes) { total_ += bytes; }

    void write(const void *data, size_t size_bytes); // header and slots, which are no sections
    // Appends a raw section and returns the offset of its frame.
    uint64_t append(SectionKind kind, const void *data, uint64_t bytes);
    // The same for a section with a digest. Returns `old` if that has the same bytes, and an empty
    // reference if there are none.
    SectionRef put(SectionKind kind, const void *data, uint64_t bytes, const SectionRef &old);
    // Appends a section with the given frame and returns the frame's offset.
    uint64_t append(const Frame &frame, const void *stored);
    // The same; the stored bytes are those that the sink's lender has at this offset.
    uint64_t append_lent(const Frame &frame, uint64_t lent);
    void flush(); // writes the gathered bytes
    void cut();   // tells the sink
    void report() const { watch_.step(done_, total_); }

  private:
    void pad();

    const Sink sink_;
    uint64_t next_;
    const uint64_t sequence_;
    const Watch watch_;
    uint64_t done_ = 0;
    uint64_t total_ = 0;
    std::vector<uint8_t> pending_;
};

} // namespace stasis::format
