// Where a save writes: sections one after the other, small ones gathered into larger writes, into a
// file or a stream. Knows nothing of what sections hold.
#pragma once

#include <cstdint>
#include <vector>

#include "format/layout.h"
#include "format/section.h"
#include "format/state/watch.h"
#include "format/stream.h"

namespace stasis::format {

class Output {
  public:
    // `next`: offset of what is written first, a multiple of 64. Progress is told in steps of raw
    // bytes of runs, `total` of them.
    Output(const Sink &sink, uint64_t next, uint64_t sequence, const Watch &watch)
        : sink_(sink), next_(next), sequence_(sequence), watch_(watch) {}
    Output(const Output &) = delete;
    Output &operator=(const Output &) = delete;

    uint64_t next() const { return next_; } // offset of what is appended next
    uint64_t sequence() const { return sequence_; }
    void expect(uint64_t run_bytes) { total_ = run_bytes; }

    void write(const void *data, size_t size_bytes); // not a section: header and slots
    // Appends a raw section and returns the offset of its frame.
    uint64_t append(SectionKind kind, const void *data, uint64_t bytes);
    // The same with the digest; `old` if it holds the same bytes; no section if there are none.
    SectionRef put(SectionKind kind, const void *data, uint64_t bytes, const SectionRef &old);
    uint64_t append(const Frame &frame, const void *stored);
    void flush(); // hands on what was gathered
    void report() const { watch_.step(done_, total_); }

  private:
    const Sink sink_;
    uint64_t next_;
    const uint64_t sequence_;
    const Watch watch_;
    uint64_t done_ = 0;
    uint64_t total_ = 0;
    std::vector<uint8_t> pending_;
};

} // namespace stasis::format
