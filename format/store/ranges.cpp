// Reading from segments and payloads; see ranges.h.
#include "format/store/ranges.h"

#include <algorithm>

#include "format/state/error.h"

namespace stasis::format {

namespace {

constexpr size_t kRecentPayloads = 4;

[[noreturn]] void refuse_missing(const std::string &key) {
    fail(Status::corrupt, "%s: the object is missing", key.c_str());
}

void check_digest(const void *data, size_t bytes, const Digest &digest, const std::string &key) {
    const Digest found = Sha256().bytes(data, bytes).finish();
    if (found != digest) {
        fail(Status::corrupt, "%s: the object is damaged, its bytes give %s", key.c_str(),
             to_hex(found).c_str());
    }
}

uint64_t payload_bytes(const Segment &segment) {
    return segment.end - segment.begin - segment.inlined.size();
}

} // namespace

Bytes get_object(Backend &backend, const Digest &digest, const Watch &watch) {
    const std::string key = object_key(digest);
    std::optional<Bytes> bytes = backend.get(key, watch);
    if (!bytes) {
        refuse_missing(key);
    }
    check_digest(bytes->data(), bytes->size(), digest, key);
    return std::move(*bytes);
}

Segment get_segment(Backend &backend, const StoredRoot &root, size_t index, const Watch &watch) {
    const SegmentRef &ref = root.segments[index];
    const std::string key = object_key(ref.digest);
    const Bytes bytes = get_object(backend, ref.digest, watch);
    Segment segment = decode_segment(bytes, key);
    const uint64_t begin = index == 0 ? kSectionsBegin : root.segments[index - 1].end;
    if (segment.begin != begin || segment.end != ref.end || bytes.size() != ref.object_bytes ||
        payload_bytes(segment) != ref.payload_bytes) {
        fail(Status::corrupt, "%s: a segment from byte %llu to %llu, the root says %llu to %llu",
             key.c_str(), static_cast<Number>(segment.begin), static_cast<Number>(segment.end),
             static_cast<Number>(begin), static_cast<Number>(ref.end));
    }
    return segment;
}

StoredRanges::StoredRanges(std::shared_ptr<Backend> backend, StoredRoot root,
                           const Parallel &parallel)
    : backend_(std::move(backend)), root_(std::move(root)), name_("session '" + root_.name + "'"),
      parallel_(parallel) {}

const std::vector<Segment> &StoredRanges::segments() const {
    std::call_once(fetched_, [&] {
        std::vector<Segment> segments(root_.segments.size());
        for_each(parallel_, segments.size(),
                 [&](size_t i) { segments[i] = get_segment(*backend_, root_, i); });
        segments_ = std::move(segments);
    });
    return segments_;
}

void StoredRanges::read(void *data, size_t size_bytes, uint64_t offset) const {
    if (offset < kSectionsBegin || offset > size() || size_bytes > size() - offset) {
        fail(Status::corrupt, "it ends at byte %llu, in front of %zu bytes at %llu",
             static_cast<Number>(size()), size_bytes, static_cast<Number>(offset));
    }
    try {
        copy(static_cast<uint8_t *>(data), offset, offset + size_bytes);
    } catch (const Error &) {
        failed_ = true;
        throw;
    }
}

// Copies what is between two offsets, both within the virtual file.
void StoredRanges::copy(uint8_t *into, uint64_t offset, uint64_t end) const {
    auto segment = std::upper_bound(segments().begin(), segments().end(), offset,
                                    [](uint64_t at, const Segment &each) { return at < each.end; });
    for (; offset < end; ++segment) {
        // The first payload that does not end before the offset.
        auto next = std::upper_bound(
            segment->payloads.begin(), segment->payloads.end(), offset,
            [](uint64_t at, const Extent &each) { return at < each.offset + each.bytes; });
        while (offset < std::min(end, segment->end)) {
            const bool more = next != segment->payloads.end();
            const bool within = more && next->offset <= offset;
            const uint64_t until = within ? next->offset + next->bytes
                                   : more ? next->offset
                                          : segment->end;
            const uint64_t count = std::min(until, end) - offset;
            if (within) {
                read_piece(into, count, offset, *next);
                ++next;
            } else {
                const uint64_t before = more ? next->before : payload_bytes(*segment);
                std::copy_n(segment->inlined.begin() +
                                static_cast<ptrdiff_t>(offset - segment->begin - before),
                            count, into);
            }
            into += count;
            offset += count;
        }
    }
}

std::vector<Extent> StoredRanges::payloads(uint64_t offset, uint64_t bytes) const {
    std::vector<Extent> found;
    const auto segment =
        std::upper_bound(segments().begin(), segments().end(), offset,
                         [](uint64_t at, const Segment &each) { return at < each.end; });
    if (segment == segments().end()) {
        return found;
    }
    auto next = std::lower_bound(segment->payloads.begin(), segment->payloads.end(), offset,
                                 [](const Extent &each, uint64_t at) { return each.offset < at; });
    for (uint64_t at = offset; at < offset + bytes; at += next++->bytes) {
        if (next == segment->payloads.end() || next->offset != at ||
            next->bytes > offset + bytes - at) {
            return {};
        }
        found.push_back(*next);
    }
    return found;
}

// Reads a part of a payload. A whole one goes where it is wanted at once.
void StoredRanges::read_piece(uint8_t *data, uint64_t bytes, uint64_t offset,
                              const Extent &extent) const {
    try {
        if (bytes == extent.bytes) {
            const std::string key = object_key(extent.digest);
            if (!backend_->read(key, 0, {data, static_cast<size_t>(bytes)})) {
                refuse_missing(key);
            }
            check_digest(data, static_cast<size_t>(bytes), extent.digest, key);
            return;
        }
        std::copy_n(cached(extent)->begin() + static_cast<ptrdiff_t>(offset - extent.offset), bytes,
                    data);
    } catch (const Error &error) {
        lost_ = lost_ || error.status() == Status::corrupt;
        throw;
    }
}

std::shared_ptr<const Bytes> StoredRanges::cached(const Extent &extent) const {
    {
        const std::lock_guard lock(mutex_);
        for (const auto &[digest, bytes] : recent_) {
            if (digest == extent.digest) {
                return bytes;
            }
        }
    }
    const auto bytes = std::make_shared<const Bytes>(get_object(*backend_, extent.digest));
    if (bytes->size() != extent.bytes) {
        fail(Status::corrupt, "%s: %zu bytes, a segment says %llu",
             object_key(extent.digest).c_str(), bytes->size(), static_cast<Number>(extent.bytes));
    }
    const std::lock_guard lock(mutex_);
    recent_.emplace_front(extent.digest, bytes);
    if (recent_.size() > kRecentPayloads) {
        recent_.pop_back();
    }
    return bytes;
}

} // namespace stasis::format
