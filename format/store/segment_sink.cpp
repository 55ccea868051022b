// From sections to payloads and segments; see segment_sink.h.
#include "format/store/segment_sink.h"

#include <algorithm>
#include <cassert>

namespace stasis::format {

namespace {

constexpr size_t kPendingBytes = size_t{32} << 20, kPendingCount = 256;

// Puts an object. Returns whether it was there.
bool put_payload(Backend &backend, const Digest &digest, const Bytes &bytes, bool repair,
                 const Watch &watch) {
    const std::string key = object_key(digest);
    bool there = false;
    if (repair) {
        const std::optional<Bytes> found = backend.get(key, watch);
        there = found && *found == bytes;
        if (found && !there) {
            backend.replace(key, bytes, watch);
            return false;
        }
    } else {
        there = backend.read(key, 0, {}, watch);
    }
    backend.put(key, bytes, watch); // also where it is there: its age begins anew
    return there;
}

} // namespace

SegmentRef put_segment(Backend &backend, const Segment &segment, PutCounts &counts, bool repair,
                       const Watch &watch) {
    const Bytes bytes = encode_segment(segment);
    const Digest digest = Sha256().bytes(bytes.data(), bytes.size()).finish();
    bool there = false;
    if (repair) {
        there = put_payload(backend, digest, bytes, repair, watch);
    } else {
        backend.put(object_key(digest), bytes, watch);
    }
    (there ? counts.shared : counts.written) += bytes.size();
    return {digest, segment.end, bytes.size(),
            segment.end - segment.begin - segment.inlined.size()};
}

SegmentSink::SegmentSink(Backend &backend, uint64_t begin, const Parallel &parallel,
                         const Watch &watch, bool repair, const StoredRanges *lender)
    : backend_(backend), parallel_(parallel), watch_(watch.silent()), repair_(repair),
      anew_(begin == kSectionsBegin), lender_(lender) {
    segment_.begin = segment_.end = begin;
}

void SegmentSink::lend(void *user, uint64_t offset, uint64_t size_bytes) {
    auto *self = static_cast<SegmentSink *>(user);
    assert(self->frame_.empty() && self->stored_ == size_bytes);
    const std::vector<Extent> extents =
        self->payload_ ? self->lender_->payloads(offset, size_bytes) : std::vector<Extent>();
    if (extents.empty()) {
        Bytes bytes(static_cast<size_t>(size_bytes));
        self->lender_->read(bytes.data(), bytes.size(), offset);
        write(user, bytes.data(), bytes.size());
        return;
    }
    self->put_payloads(); // those before, which are the segment's last so far
    for (const Extent &extent : extents) {
        const std::string key = object_key(extent.digest);
        if (!self->backend_.read(key, 0, {}, self->watch_)) {
            fail(Status::corrupt, "%s: the object is missing", key.c_str());
        }
        self->segment_.payloads.push_back({self->segment_.end, extent.bytes, extent.digest});
        self->segment_.end += extent.bytes;
        self->counts_.shared += extent.bytes;
    }
    self->stored_ = 0;
}

void SegmentSink::write(void *user, const void *data, size_t size_bytes) {
    auto *self = static_cast<SegmentSink *>(user);
    const auto *bytes = static_cast<const uint8_t *>(data);
    while (size_bytes > 0) {
        const size_t taken = self->take(bytes, size_bytes);
        bytes += taken;
        size_bytes -= taken;
    }
}

// Takes bytes of one part of a section, at least one. Returns their number.
size_t SegmentSink::take(const uint8_t *data, size_t size_bytes) {
    if (stored_ == 0 && padding_ == 0) { // in a frame
        const size_t count = std::min(size_bytes, kFrameBytes - frame_.size());
        frame_.insert(frame_.end(), data, data + count);
        if (frame_.size() == kFrameBytes) {
            begin_section();
        }
        return count;
    }
    if (stored_ == 0 || !payload_) {
        uint64_t &left = stored_ != 0 ? stored_ : padding_;
        const auto count = static_cast<size_t>(std::min<uint64_t>(size_bytes, left));
        segment_.inlined.insert(segment_.inlined.end(), data, data + count);
        segment_.end += count;
        left -= count;
        return count;
    }
    const auto count = static_cast<size_t>(
        std::min({uint64_t{size_bytes}, stored_, kPayloadMax - uint64_t{piece_.size()}}));
    piece_.insert(piece_.end(), data, data + count);
    stored_ -= count;
    if (stored_ == 0 || piece_.size() == kPayloadMax) {
        end_piece();
    }
    return count;
}

void SegmentSink::end_segment() {
    put_payloads();
    segments_.push_back(put_segment(backend_, segment_, counts_, repair_ || anew_, watch_));
    const uint64_t begin = segment_.end;
    segment_ = {};
    segment_.begin = segment_.end = begin;
}

void SegmentSink::cut(void *user) {
    static_cast<SegmentSink *>(user)->end_segment();
}

void SegmentSink::begin_section() {
    FrameBytes bytes;
    std::copy(frame_.begin(), frame_.end(), bytes.begin());
    const Frame frame = decode_frame(bytes, segment_.end);
    // Here, where a section ends, a segment that is large enough does.
    if (segment_.inlined.size() >= kInlineMax) {
        end_segment();
    }
    segment_.inlined.insert(segment_.inlined.end(), frame_.begin(), frame_.end());
    segment_.end += kFrameBytes;
    frame_.clear();
    stored_ = frame.stored_bytes;
    padding_ = section_bytes(stored_) - kFrameBytes - stored_;
    payload_ = has_payload(frame);
    piece_.reserve(payload_ ? std::min(stored_, kPayloadMax) : 0);
}

void SegmentSink::end_piece() {
    segment_.payloads.push_back({segment_.end, piece_.size(), {}});
    segment_.end += piece_.size();
    pending_bytes_ += piece_.size();
    pending_.push_back(std::move(piece_));
    piece_ = {};
    piece_.reserve(std::min(stored_, kPayloadMax));
    if (pending_bytes_ >= kPendingBytes || pending_.size() >= kPendingCount) {
        put_payloads();
    }
}

void SegmentSink::put_payloads() {
    std::vector<uint8_t> there(pending_.size());
    Extent *const extents = segment_.payloads.data() + (segment_.payloads.size() - pending_.size());
    for_each(parallel_, pending_.size(), [&](size_t i) {
        watch_.look(0, 0);
        extents[i].digest = Sha256().bytes(pending_[i].data(), pending_[i].size()).finish();
        there[i] = put_payload(backend_, extents[i].digest, pending_[i], repair_, watch_) ? 1 : 0;
    });
    for (size_t i = 0; i < pending_.size(); ++i) {
        (there[i] != 0 ? counts_.shared : counts_.written) += pending_[i].size();
    }
    pending_.clear();
    pending_bytes_ = 0;
}

Segment SegmentSink::finish() {
    if (!frame_.empty() || stored_ != 0 || padding_ != 0) {
        fail(
            Status::corrupt, "the last section is cut off: %llu bytes of it are missing",
            static_cast<Number>(frame_.empty() ? stored_ + padding_ : kFrameBytes - frame_.size()));
    }
    put_payloads();
    return std::move(segment_);
}

} // namespace stasis::format
