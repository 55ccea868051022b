// Which segments are merged, and merging; see merging.h.
#include "format/store/merging.h"

#include <iterator>

#include "format/store/ranges.h"

namespace stasis::format {

namespace {

constexpr size_t kFan = 4;
constexpr uint64_t kLeastBytes = uint64_t{16} << 10;
// Where the shape of a history would leave more of them, all are merged.
constexpr size_t kSegmentsMax = 64;

// Of an object of so many bytes: each level is four times the one below.
size_t level_of(uint64_t bytes) {
    size_t level = 0;
    for (uint64_t most = kLeastBytes; bytes > most && level < 30; most *= kFan) {
        ++level;
    }
    return level;
}

// Returns the index of the first segment that is merged with those after it.
size_t first_merged(std::vector<uint64_t> sizes) {
    for (size_t level = 0; level <= level_of(sizes.back()); ++level) {
        size_t first = sizes.size(), count = 0;
        while (first > 0 && level_of(sizes[first - 1]) <= level) {
            --first;
            count += level_of(sizes[first]) == level ? 1 : 0;
        }
        if (count >= kFan) {
            uint64_t together = 0;
            for (size_t i = first; i < sizes.size(); ++i) {
                together += sizes[i];
            }
            if (together > 4 * kInlineMax) {
                break;
            }
            sizes.resize(first + 1);
            sizes.back() = together;
        }
    }
    return sizes.size() > kSegmentsMax ? 0 : sizes.size() - 1;
}

} // namespace

void add_merged(Backend &backend, StoredRoot &root, Segment segment, PutCounts &counts, bool repair,
                const Watch &watch) {
    std::vector<uint64_t> sizes;
    for (const SegmentRef &each : root.segments) {
        sizes.push_back(each.object_bytes);
    }
    sizes.push_back(encode_segment(segment).size());
    const size_t first = first_merged(std::move(sizes));
    if (first < root.segments.size()) {
        Segment merged = get_segment(backend, root, first, watch);
        const auto append = [&](const Segment &next) {
            merged.end = next.end;
            merged.payloads.insert(merged.payloads.end(), next.payloads.begin(),
                                   next.payloads.end());
            merged.inlined.insert(merged.inlined.end(), next.inlined.begin(), next.inlined.end());
        };
        for (size_t i = first + 1; i < root.segments.size(); ++i) {
            append(get_segment(backend, root, i, watch));
        }
        append(segment);
        segment = std::move(merged);
        root.segments.resize(first);
    }
    root.segments.push_back(put_segment(backend, segment, counts, repair, watch));
}

} // namespace stasis::format
