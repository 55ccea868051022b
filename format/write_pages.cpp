// Finding what the file shares with a state, and writing the rest in batches on all threads; see
// write_pages.h.
#include "format/write_pages.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "format/check.h"
#include "format/fingerprint.h"
#include "format/pages.h"
#include "format/state/error.h"

namespace stasis::format {

namespace {

// Memory that only grows and is handed from batch to batch: what is allocated anew for each costs
// more in page faults than what is done in it.
template <typename T> struct Buffer {
    std::unique_ptr<T[]> data = {};
    size_t capacity = 0;

    T *at_least(size_t count) {
        if (capacity < count) {
            data = std::make_unique_for_overwrite<T[]>(count);
            capacity = count;
        }
        return data.get();
    }
};

struct Buffers {
    Buffer<uint16_t> page;   // unless it is in memory
    Buffer<uint16_t> packed; // unless the page is written as it is in memory
    Buffer<uint8_t> coded;
};

// Slots of a page that become a run, or a page that gets fingerprints.
struct Job {
    size_t group = 0;
    uint64_t index = 0;
    PageRecord *entry = nullptr;
    uint32_t begin = 0; // first slot
    uint32_t slots = 0; // 0: fingerprints

    const uint16_t *fetched = nullptr; // all numbers of a far page, which are here by now
    // While it is worked on.
    Buffers *buffers = nullptr;
    const uint16_t *numbers = nullptr; // of the run
    uint8_t *coded = nullptr;
    Frame frame = {};
};

// The numbers of a page that has data: as they are in memory, or read into `buffer`.
const uint16_t *page_numbers(const SaveInput &input, const Job &job) {
    if (input.pages_in == nullptr) {
        return job.fetched != nullptr ? job.fetched : input.state.pages[job.group][job.index].data;
    }
    uint16_t *numbers = job.buffers->page.at_least(page_elements(input.state, job.group));
    const PageInto page{job.group, job.index, numbers};
    input.pages_in->read({&page, 1});
    return numbers;
}

// Begins to bring the far pages of a batch.
FetchedPages fetch(std::span<const Job> jobs, const SaveInput &input) {
    std::vector<PageName> far;
    for (const Job &job : jobs) {
        if (input.pages_in == nullptr && input.state.pages[job.group][job.index].far) {
            far.push_back({job.group, job.index});
        }
    }
    return far.empty() ? FetchedPages() : input.state.fetch(far);
}

// Waits for them, and says where they are.
void receive(std::span<Job> jobs, const SaveInput &input, const FetchedPages &fetched) {
    if (fetched.wait == nullptr) {
        return;
    }
    fetched.wait();
    size_t next = 0;
    for (Job &job : jobs) {
        if (input.state.pages[job.group][job.index].far) {
            job.fetched = fetched.numbers[next++];
        }
    }
}

// How many of the first slots two pages in memory have in common, at most `limit`.
uint32_t common_slots(const State &state, size_t group, uint32_t limit, const uint16_t *a,
                      const uint16_t *b) {
    const size_t full = size_t{state.page_positions} * state.head_dim_of(group);
    for (size_t row = 0; row < page_rows(state, group); ++row) {
        const uint16_t *begin = a + row * full;
        const uint16_t *end = begin + size_t{limit} * state.head_dim_of(group);
        if (std::memcmp(begin, b + row * full, static_cast<size_t>(end - begin) * 2) == 0) {
            continue; // nearly always
        }
        const auto same = std::mismatch(begin, end, b + row * full).first - begin;
        limit = static_cast<uint32_t>(static_cast<size_t>(same) / state.head_dim_of(group));
    }
    return limit;
}

// The runs of the first `slots` slots.
std::vector<Run> first_runs(const std::vector<Run> &runs, uint32_t slots) {
    std::vector<Run> kept;
    for (const Run &run : runs) {
        if (slots == 0) {
            break;
        }
        kept.push_back(run);
        kept.back().used = static_cast<uint16_t>(std::min<uint32_t>(run.used, slots));
        slots -= kept.back().used;
    }
    return kept;
}

// Pages of one table and of another can be compared only if they have the same shape.
bool same_geometry(const State &a, const State &b) {
    bool same = a.page_positions == b.page_positions && a.groups.size() == b.groups.size();
    for (size_t group = 0; same && group < a.groups.size(); ++group) {
        same = a.groups[group].layers == b.groups[group].layers &&
               a.kv_heads_of(group) == b.kv_heads_of(group) &&
               a.head_dim_of(group) == b.head_dim_of(group);
    }
    return same;
}

// Takes a run of the lender, whose bytes the sink has. Returns whether it is one that this save
// would write: whole, so that nothing but this state's numbers is in it, and in the same code.
bool take_lent(Output &output, const SaveInput &input, size_t group, const Run &run,
               PageRecord &entry) {
    if (run.used != run.slots) {
        return false;
    }
    FrameBytes bytes;
    input.options.lender->input().read(bytes.data(), bytes.size(), run.offset);
    Frame frame = decode_frame(bytes, run.offset);
    if (frame.kind != SectionKind::run || frame.stored_bytes != run.stored_bytes ||
        frame.raw_bytes != run_shape(input.state, group, run.slots).bytes() ||
        frame.codec != input.options.codec) {
        return false;
    }
    frame.sequence = output.sequence();
    Run taken = run;
    taken.offset = output.append_lent(frame, run.offset + kFrameBytes);
    entry.runs.push_back(taken);
    return true;
}

// Walks over one page table beside that of the file, or of the lender.
struct Planner {
    const SaveInput &input;
    size_t group;
    const Snapshot *old;    // null: nothing to share
    const Snapshot *lender; // null: none
    Output &output;
    bool parted = false; // from the first page on that differs, nothing is shared

    // How many slots the page has in common with another's.
    uint32_t common_with(const Snapshot &other, uint64_t index) const {
        const auto data = allocate_page(page_elements(input.state, group));
        other.read_slots(group, index, data.get()); // what is shared is this state's own bytes
        Buffers buffers;
        Job whole{group, index};
        whole.buffers = &buffers;
        const FetchedPages fetched = fetch({&whole, 1}, input);
        receive({&whole, 1}, input, fetched);
        return common_slots(
            input.state, group,
            std::min(input.state.pages[group][index].valid, other.page(group, index).valid),
            page_numbers(input, whole), data.get());
    }

    // Takes what the lender has of the page, and says from which slot on slots are missing. Where
    // the two part within the page, at `cut`, a run ends: so each session that goes on from there
    // has what is before it in the same bytes.
    void borrow(uint64_t index, PageRecord &entry, uint32_t &missing, uint32_t &cut) {
        if (parted || index >= lender->state().pages[group].size()) {
            return;
        }
        const PageRecord &there = lender->page(group, index);
        parted = there.digest != entry.digest || there.valid != entry.valid;
        if (there.runs.empty() || (parted && input.state.pages[group][index].far)) {
            return;
        }
        cut = parted ? common_with(*lender, index) : entry.valid;
        for (const Run &run : there.runs) {
            if (run.used > cut - missing || !take_lent(output, input, group, run, entry)) {
                break;
            }
            missing += run.used;
        }
    }

    // The entry with the runs that the file has for it; says from which slot on they are missing.
    PageRecord plan(uint64_t index, uint32_t &missing, uint32_t &cut) {
        const Page &page = input.state.pages[group][index];
        const bool wanted = input.options.keep == Keep::full && input.has_data(group, index);
        PageRecord entry{page.digest, page.valid, {}, {}};
        missing = wanted ? 0 : page.valid;
        if (input.pages_in != nullptr) {
            entry.fingerprints = input.pages_in->page(group, index).fingerprints;
        }
        if (lender != nullptr && wanted) {
            borrow(index, entry, missing, cut);
            return entry;
        }
        if (old == nullptr || parted || index >= old->state().pages[group].size()) {
            return entry;
        }
        const PageRecord &there = old->page(group, index);
        if (there.digest == page.digest && there.valid == page.valid) {
            if (wanted == !there.runs.empty()) {
                missing = page.valid;
                return there;
            }
            return entry;
        }
        parted = true;
        if (!wanted || there.runs.empty()) {
            return entry;
        }
        if (old->known() && there.valid < page.valid && there.valid == page.earlier_valid &&
            there.digest == page.earlier) {
            missing = there.valid;
            entry.runs = there.runs;
        } else {
            missing = common_with(*old, index);
            entry.runs = first_runs(there.runs, missing);
        }
        return entry;
    }
};

// Checks the page, and makes it a run with its checksum, or fingerprints.
void prepare(Job &job, const SaveInput &input, uint64_t sequence) {
    const State &state = input.state;
    const uint16_t *data = page_numbers(input, job);
    check_page_finite(state, job.group, job.index, data, state.page_positions,
                      Status::invalid_argument);
    if (job.slots == 0) {
        job.entry->fingerprints =
            page_fingerprints(state, job.group, job.entry->valid, data, state.page_positions);
        return;
    }
    const RunShape shape = run_shape(state, job.group, job.slots);
    job.numbers = data;
    if (job.slots != state.page_positions) {
        uint16_t *packed = job.buffers->packed.at_least(shape.numbers());
        pack_run(state, job.group, job.begin, job.slots, data, packed);
        job.numbers = packed;
    }
    const uint64_t bytes = shape.bytes();
    job.frame = {SectionKind::run, Codec::raw, bytes, bytes, checksum(job.numbers, bytes),
                 sequence};
}

// Codes the runs of a batch, all their frames at once. What does not become smaller stays raw, and
// what would become so small that a reader could not tell it from an attack.
void encode(std::span<Job> jobs, const SaveInput &input, FrameCoder &coder) {
    struct Piece {
        Job *job;
        size_t index;
    };
    std::vector<Piece> pieces;
    for (Job &job : jobs) {
        if (job.slots != 0) {
            const RunShape shape = run_shape(input.state, job.group, job.slots);
            job.coded = job.buffers->coded.at_least(encoded_bound(shape));
            for (size_t i = 0; i < frame_count(shape); ++i) {
                pieces.push_back({&job, i});
            }
        }
    }
    for_each(input.options.parallel, pieces.size(), [&](size_t i) {
        const auto &[job, index] = pieces[i];
        coder.encode(run_shape(input.state, job->group, job->slots), index, job->numbers,
                     job->coded);
    });
    for_each(input.options.parallel, jobs.size(), [&](size_t i) {
        Job &job = jobs[i];
        if (job.slots != 0) {
            const RunShape shape = run_shape(input.state, job.group, job.slots);
            const uint64_t bytes = close_run(shape, job.coded);
            if (bytes < shape.bytes() && shape.bytes() / kCodecRatioMax <= bytes) {
                job.frame.codec = Codec::zstd;
                job.frame.stored_bytes = bytes;
            }
        }
    });
}

void run_batch(Output &output, std::span<Job> jobs, const SaveInput &input, FrameCoder &coder) {
    for_each(input.options.parallel, jobs.size(),
             [&](size_t i) { prepare(jobs[i], input, output.sequence()); });
    if (input.options.codec == Codec::zstd) {
        encode(jobs, input, coder);
    }
    for (Job &job : jobs) {
        if (job.slots != 0) {
            const bool raw = job.frame.codec == Codec::raw;
            Run run;
            run.offset =
                output.append(job.frame, raw ? static_cast<const void *>(job.numbers) : job.coded);
            run.stored_bytes = job.frame.stored_bytes;
            run.slots = run.used = static_cast<uint16_t>(job.slots);
            job.entry->runs.push_back(run);
        }
    }
}

uint64_t job_bytes(const Job &job, const State &state) {
    return page_stored_bytes(state, job.group, job.slots == 0 ? job.entry->valid : job.slots);
}

// The jobs from `begin` on that make a batch.
std::span<Job> batch_from(std::vector<Job> &jobs, size_t begin, const State &state) {
    uint64_t bytes = 0;
    size_t end = begin;
    while (end < jobs.size() && bytes < kBatchBytes) {
        bytes += job_bytes(jobs[end++], state);
    }
    return std::span(jobs).subspan(begin, end - begin);
}

// Batch by batch; far pages of the next one are on their way while one is worked on.
void write_jobs(Output &output, std::vector<Job> &jobs, const SaveInput &input) {
    FrameCoder coder;
    std::vector<Buffers> buffers;
    std::span<Job> batch = batch_from(jobs, 0, input.state);
    FetchedPages fetched = fetch(batch, input);
    for (size_t end = batch.size(); !batch.empty();) {
        const std::span<Job> next = batch_from(jobs, end, input.state);
        FetchedPages ahead = fetch(next, input);
        receive(batch, input, fetched);
        buffers.resize(std::max(buffers.size(), batch.size()));
        for (size_t i = 0; i < batch.size(); ++i) {
            batch[i].buffers = &buffers[i];
        }
        run_batch(output, batch, input, coder);
        output.report();
        end += next.size();
        batch = next;
        fetched = std::move(ahead);
    }
}

} // namespace

bool SaveInput::has_data(size_t group, uint64_t index) const {
    return pages_in != nullptr ? pages_in->stored(group, index) : state.pages[group][index].kept();
}

PageTables write_pages(Output &output, const SaveInput &input,
                       const std::function<void(const PageTables &)> &between) {
    const State &state = input.state;
    const auto comparable = [&](const Snapshot *other) {
        return other != nullptr && same_geometry(other->state(), state) ? other : nullptr;
    };
    PageTables table(state.pages.size());
    std::vector<Job> jobs;
    uint64_t total = 0;
    for (size_t group = 0; group < table.size(); ++group) {
        Planner planner{input, group, comparable(input.old), comparable(input.options.lender),
                        output};
        table[group].resize(state.pages[group].size());
        for (uint64_t index = 0; index < table[group].size(); ++index) {
            PageRecord &entry = table[group][index];
            uint32_t missing = 0, cut = 0;
            entry = planner.plan(index, missing, cut);
            const bool none = input.options.keep == Keep::none && entry.fingerprints.empty() &&
                              input.has_data(group, index);
            if (missing < cut && cut < entry.valid) {
                jobs.push_back({group, index, &entry, missing, cut - missing});
                total += job_bytes(jobs.back(), state);
                missing = cut;
            }
            if (missing < entry.valid || none) {
                jobs.push_back({group, index, &entry, missing, entry.valid - missing});
                total += none ? 0 : job_bytes(jobs.back(), state);
            }
        }
    }
    output.expect(total);
    output.report();
    between(table);
    write_jobs(output, jobs, input);
    return table;
}

} // namespace stasis::format
