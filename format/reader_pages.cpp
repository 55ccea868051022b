// Reading pages of a snapshot: runs from the file, decoded, put together and checked; see reader.h.
#include <algorithm>
#include <memory>

#include "format/check.h"
#include "format/naming.h"
#include "format/pages.h"
#include "format/reader.h"
#include "format/state/error.h"
#include "format/state/sha256_lanes.h"

namespace stasis::format {

namespace {

std::string page_name(size_t group, uint64_t index) {
    return "page " + std::to_string(index) + " of layer group " + std::to_string(group);
}

} // namespace

// All slots of a run, in the order of its section.
void Snapshot::read_run(size_t group, const Run &run, uint16_t *numbers) const {
    const Frame frame = committed().read_frame(run.offset, SectionKind::run);
    const RunShape shape = run_shape(state(), group, run.slots);
    if (frame.stored_bytes != run.stored_bytes || frame.raw_bytes != shape.bytes()) {
        fail(Status::corrupt,
             "section at byte %llu (run): %llu bytes in %llu stored ones, expected %llu in %llu",
             static_cast<Number>(run.offset), static_cast<Number>(frame.raw_bytes),
             static_cast<Number>(frame.stored_bytes), static_cast<Number>(shape.bytes()),
             static_cast<Number>(run.stored_bytes));
    }
    if (frame.codec == Codec::raw) {
        input_.read(numbers, frame.stored_bytes, run.offset + kFrameBytes);
    } else {
        std::vector<uint8_t> stored(frame.stored_bytes);
        input_.read(stored.data(), stored.size(), run.offset + kFrameBytes);
        for (size_t i = 0; i < frame_count(shape); ++i) {
            coder_.decode(shape, i, stored.data(), stored.size(), numbers);
        }
    }
    if (checksum(numbers, frame.raw_bytes) != frame.checksum) {
        fail(Status::corrupt, "section at byte %llu (run): its bytes do not give its checksum",
             static_cast<Number>(run.offset));
    }
}

void Snapshot::read_rows(size_t group, uint64_t index, uint32_t row_slots, uint16_t *data) const {
    const auto read = [&] {
        uint32_t slot = 0;
        for (const Run &run : pages()[group][index].runs) {
            if (run.used == row_slots && run.slots == row_slots) { // as it is in memory
                read_run(group, run, data);
            } else {
                const auto numbers = std::make_unique_for_overwrite<uint16_t[]>(
                    run_shape(state(), group, run.slots).numbers());
                read_run(group, run, numbers.get());
                unpack_run(state(), group, run, slot, numbers.get(), row_slots, data);
            }
            slot += run.used;
        }
    };
    naming(input_.path(), [&] { naming(page_name(group, index), read); });
}

DigestedPage Snapshot::digested(const PageInto &page, uint32_t row_slots) const {
    return {static_cast<uint32_t>(page.group), page.index, page.data,
            page_rows(state(), page.group),    row_slots,  pages()[page.group][page.index].valid,
            state().head_dim_of(page.group)};
}

void Snapshot::check_page(const PageInto &page, uint32_t row_slots, const Digest &digest) const {
    const Digest &expected = pages()[page.group][page.index].digest;
    naming(input_.path(), [&] {
        if (digest != expected) {
            fail(Status::corrupt, "%s: its digest is %s, expected %s",
                 page_name(page.group, page.index).c_str(), to_hex(digest).c_str(),
                 to_hex(expected).c_str());
        }
        check_page_finite(state(), page.group, page.index, page.data, row_slots, Status::corrupt);
    });
}

void Snapshot::read_slots(size_t group, uint64_t index, uint16_t *data) const {
    read_rows(group, index, state().page_positions, data);
}

void Snapshot::read(std::span<const PageInto> into) const {
    const uint32_t row_slots = state().page_positions;
    for (size_t begin = 0; begin < into.size(); begin += kSha256Lanes) {
        const std::span<const PageInto> some =
            into.subspan(begin, std::min(kSha256Lanes, into.size() - begin));
        DigestedPage whole[kSha256Lanes];
        Digest digests[kSha256Lanes];
        for (size_t i = 0; i < some.size(); ++i) {
            const PageInto &page = some[i];
            read_slots(page.group, page.index, page.data);
            whole[i] = digested(page, row_slots);
            clear_slots(state(), page.group, static_cast<uint32_t>(whole[i].valid), page.data);
        }
        page_digests({whole, some.size()}, digests);
        for (size_t i = 0; i < some.size(); ++i) {
            check_page(some[i], row_slots, digests[i]);
        }
    }
}

std::vector<uint16_t> Snapshot::read_packed(size_t group, uint64_t index) const {
    const uint32_t valid = pages()[group][index].valid;
    std::vector<uint16_t> data(run_shape(state(), group, valid).numbers());
    read_rows(group, index, valid, data.data());
    const PageInto page{group, index, data.data()};
    check_page(page, valid, page_digest(digested(page, valid)));
    return data;
}

void Snapshot::read_pages(State &into, const Watch &watch, const Parallel &parallel) const {
    std::vector<PageInto> jobs;
    uint64_t total = 0;
    for (size_t group = 0; group < pages().size(); ++group) {
        for (uint64_t index = 0; index < pages()[group].size(); ++index) {
            if (stored(group, index)) {
                jobs.push_back({group, index, nullptr});
                total += page_stored_bytes(state(), group, pages()[group][index].valid);
            }
        }
    }
    uint64_t done = 0;
    for (size_t begin = 0; begin < jobs.size();) {
        watch.step(done, total);
        uint64_t bytes = 0;
        size_t end = begin;
        for (; end < jobs.size() && bytes < kBatchBytes; ++end) {
            PageInto &job = jobs[end];
            const std::shared_ptr<uint16_t> data = allocate_page(page_elements(state(), job.group));
            job.data = data.get();
            into.pages[job.group][job.index].data = data.get();
            into.storage.push_back(data);
            bytes += page_stored_bytes(state(), job.group, pages()[job.group][job.index].valid);
        }
        const std::span<const PageInto> batch(jobs.data() + begin, end - begin);
        // A batch is a few pages: not so many a thread that others idle.
        constexpr size_t kSide = kSha256Interleaved;
        for_each(parallel, (batch.size() + kSide - 1) / kSide, [&](size_t i) {
            const size_t first = i * kSide;
            read(batch.subspan(first, std::min(kSide, batch.size() - first)));
        });
        begin = end;
        done += bytes;
    }
    watch.step(done, total);
}

} // namespace stasis::format
