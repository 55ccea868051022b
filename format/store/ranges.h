// The bytes of a stored session, as if they were a file: read from segments and payloads, each
// checked against its name before a byte of it is used. Must not know what the bytes mean.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "format/input.h"
#include "format/parallel.h"
#include "format/store/backend.h"
#include "format/store/records.h"

namespace stasis::format {

// Returns the bytes of an object. Throws Error(corrupt), which names it, if it is missing or its
// bytes do not give its name; Error(io).
Bytes get_object(Backend &backend, const Digest &digest, const Watch &watch = {});
// Returns a segment after all checks: of its bytes, and of what the root says of it.
Segment get_segment(Backend &backend, const StoredRoot &root, size_t index,
                    const Watch &watch = {});

// Segments are fetched at the first read, all of them: they hold what every open needs. Payloads
// are fetched whenever they are read.
class StoredRanges : public Ranges {
  public:
    StoredRanges(std::shared_ptr<Backend> backend, StoredRoot root, const Parallel &parallel);

    const std::string &name() const override { return name_; }
    uint64_t size() const override { return root_.end(); }
    void read(void *data, size_t size_bytes, uint64_t offset) const override;
    // Whether a payload was found missing or damaged: what else depends on it can be computed.
    bool lost_payload() const { return lost_; }
    bool failed() const { return failed_; }       // a read, for whatever reason
    const std::vector<Segment> &segments() const; // fetched now, if they were not
    const StoredRoot &root() const { return root_; }
    // Returns the payloads that hold these bytes and nothing else; none: they are in no payload.
    std::vector<Extent> payloads(uint64_t offset, uint64_t bytes) const;

  private:
    void copy(uint8_t *into, uint64_t offset, uint64_t end) const;
    void read_piece(uint8_t *data, uint64_t bytes, uint64_t offset, const Extent &extent) const;
    std::shared_ptr<const Bytes> cached(const Extent &extent) const;

    const std::shared_ptr<Backend> backend_;
    const StoredRoot root_;
    const std::string name_;
    const Parallel parallel_;
    mutable std::once_flag fetched_;
    mutable std::vector<Segment> segments_;
    mutable std::atomic<bool> lost_{false}, failed_{false};
    // Payloads of which only a part was asked for, the latest first.
    mutable std::mutex mutex_;
    mutable std::list<std::pair<Digest, std::shared_ptr<const Bytes>>> recent_;
};

} // namespace stasis::format
