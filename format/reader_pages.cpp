// Reading pages of a snapshot: runs from the file, decoded, put together and checked; see reader.h.
#include <algorithm>
#include <memory>

#include "format/check.h"
#include "format/naming.h"
#include "format/pages.h"
#include "format/reader.h"
#include "format/state/error.h"

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

void Snapshot::check_page(size_t group, uint64_t index, uint32_t row_slots,
                          const uint16_t *data) const {
    const PageRecord &entry = pages()[group][index];
    naming(input_.path(), [&] {
        const Digest digest =
            page_digest(static_cast<uint32_t>(group), index, data, page_rows(state(), group),
                        row_slots, entry.valid, state().head_dim);
        if (digest != entry.digest) {
            fail(Status::corrupt, "%s: its digest is %s, expected %s",
                 page_name(group, index).c_str(), to_hex(digest).c_str(),
                 to_hex(entry.digest).c_str());
        }
        check_page_finite(state(), group, index, data, row_slots, Status::corrupt);
    });
}

void Snapshot::read_slots(size_t group, uint64_t index, uint16_t *data) const {
    read_rows(group, index, state().page_positions, data);
}

void Snapshot::read_page(size_t group, uint64_t index, uint16_t *data) const {
    read_slots(group, index, data);
    clear_slots(state(), group, pages()[group][index].valid, data);
    check_page(group, index, state().page_positions, data);
}

std::vector<uint16_t> Snapshot::read_packed(size_t group, uint64_t index) const {
    const uint32_t valid = pages()[group][index].valid;
    std::vector<uint16_t> data(run_shape(state(), group, valid).numbers());
    read_rows(group, index, valid, data.data());
    check_page(group, index, valid, data.data());
    return data;
}

void Snapshot::read_pages(State &into, const Watch &watch, const Parallel &parallel) const {
    struct Job {
        size_t group;
        uint64_t index;
        uint16_t *data;
    };
    std::vector<Job> jobs;
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
            Job &job = jobs[end];
            const std::shared_ptr<uint16_t> data = allocate_page(page_elements(state(), job.group));
            job.data = data.get();
            into.pages[job.group][job.index].data = data.get();
            into.storage.push_back(data);
            bytes += page_stored_bytes(state(), job.group, pages()[job.group][job.index].valid);
        }
        for_each(parallel, end - begin, [&](size_t i) {
            const Job &job = jobs[begin + i];
            read_page(job.group, job.index, job.data);
        });
        begin = end;
        done += bytes;
    }
    watch.step(done, total);
}

} // namespace stasis::format
