// How timelines grow: one session's, or those of many in the same passes. All of a session's
// entries or none; what one meets leaves the others alone.
#include <algorithm>
#include <cstring>

#include "runtime/compute/device/run.h"
#include "runtime/compute/forward.h"
#include "runtime/compute/profile.h"
#include "runtime/session/session.h"

namespace stasis {

namespace {

constexpr size_t kChunk = 512; // positions computed together unless the caller says otherwise
constexpr size_t kChunkMax = 4096;

} // namespace

// Calls the caller back with the logits of each row.
void Session::report_logits(Workspace &work, const Sequence &sequence, const RunOptions &options) {
    const size_t vocabulary = model_->config.vocabulary;
    for (size_t row = 0; row < sequence.rows; ++row) {
        const uint64_t position = sequence.begin + row;
        options.watch.look(row, sequence.rows);
        if (options.logits_wanted != nullptr &&
            !options.logits_wanted(options.logits_user, position)) {
            continue;
        }
        project_logits(*model_, work, work.hidden + (sequence.row + row) * model_->config.hidden, 1,
                       work.logits);
        check_logits(*model_, {work.logits, vocabulary});
        if (!options.logits(options.logits_user, position, work.logits, vocabulary)) {
            fail(Status::stopped, "the logits callback asked to stop at position %llu",
                 Number{position});
        }
    }
}

void Session::check_capacity(uint64_t tokens, bool at_least) const {
    const uint64_t start = log_.size();
    if (tokens > capacity_ - start) {
        fail(Status::full,
             "session full: %s%llu tokens at position %llu exceed the capacity of %llu positions",
             at_least ? "at least " : "", Number{tokens}, Number{start}, Number{capacity_});
    }
}

void Session::check_growth(const Growth &growth) const {
    const uint64_t start = log_.size();
    check_capacity(growth.entries.size(), false);
    // A system call, and so not for every token that is decoded.
    if (growth.entries.size() > 1 || (growth.entries.size() == 1 && start % kPage == 0)) {
        model_->weights.check_unchanged();
    }
}

// Refuses at once what cannot end well, `promised` bytes of the budget being others'. Returns how
// many it takes: more may be needed on the way, and others may be quicker.
uint64_t Session::check_room(uint64_t end, uint64_t promised) const {
    const uint64_t room = model_->pool->room_bytes();
    if (room == UINT64_MAX) {
        return 0;
    }
    const uint64_t needed = bytes_missing(end);
    if (needed > room || promised > room - needed) {
        fail(Status::pool_exhausted,
             "KV pool exhausted: %llu of %llu bytes in use or promised, %llu tokens need %llu more",
             Number{model_->pool->budget_bytes() - room + promised},
             Number{model_->pool->budget_bytes()}, Number{end - log_.size()}, Number{needed});
    }
    return needed;
}

// The session is as it was, and says why.
void Session::give_up(Growth &growth) noexcept {
    Session &session = *growth.session;
    session.roll_back(growth.start);
    for (size_t group = 0; group < growth.replaced.size(); ++group) { // on paths of its own
        session.pages_[group].mutate(growth.start / kPage) = std::move(growth.replaced[group]);
    }
    session.clear_beyond(growth.start);
    growth.error = std::current_exception();
    session.tell_pages(PageOrigin::before); // no longer than at the start, so nothing can fail
    session.tell(TraceKind::undone, growth.start, growth.start + growth.entries.size());
}

// Takes the growth's next rows into the pass.
void Session::enter_pass(Growth &growth, const ProfilePart &part, Workspace &work) {
    const uint64_t begin = log_.size();
    growth.sequence = work.sequence_count;
    growth.rows = part.rows;
    work.fit(model_->config, model_->weights.groups, part.padded);
    make_writable(begin, begin + growth.rows);
    tell_pages(PageOrigin::computed);
    Sequence &sequence = work.add_sequence(begin, growth.rows, pages_.size());
    work.padded = part.padded;
    name_pages(sequence);
    if (trace_) {
        trace_->reads(sequence);
    }
    if (growth.sums == nullptr && sums_.collecting(begin)) {
        growth.sums = sums_.grown(growth.start + growth.entries.size());
    }
    if (growth.sums != nullptr) {
        sequence.sums = growth.sums->data();
        sequence.sum_rows = sums_.rows();
    }
    for (const TokenEntry &entry : growth.entries.subspan(growth.done, growth.rows)) {
        work.tokens.push_back(entry.token);
    }
}

// Takes over what the pass computed for it.
void Session::leave_pass(Growth &growth, Workspace &work, const RunOptions &options) {
    const Sequence &sequence = work.sequences[growth.sequence];
    if (sequence.failed) {
        fail_sequence(*model_, sequence);
    }
    if (options.logits != nullptr) {
        report_logits(work, sequence, options);
    }
    for (const TokenEntry &entry : growth.entries.subspan(growth.done, growth.rows)) {
        log_.push_back(entry);
    }
    if (work.padded != 0) {
        profile_.chunks.push_back({sequence.begin, static_cast<uint32_t>(growth.rows),
                                   static_cast<uint32_t>(work.padded)});
    }
    growth.done += growth.rows;
    const uint64_t end = log_.size(), first = growth.start / kPage;
    if (shares_ && growth.start % kPage != 0 && growth.replaced.empty() && first < end / kPage) {
        for (const PageTable &table : pages_) { // undo needs it: once known, it may be exchanged
            growth.replaced.push_back(table[first]);
        }
    }
    digest_full_pages(sequence.begin, end);
    make_known(sequence.begin, end, work.hidden + sequence.row * model_->config.hidden);
    release_outrun(end, (growth.start + kPage - 1) / kPage); // undo needs what was at the start
    tell_pages(PageOrigin::computed);
}

// The growth is complete. `hidden` null: the last position's is computed when it is needed.
void Session::settle(Growth &growth, const uint16_t *hidden) {
    own_outrun(log_.size()); // so that nothing can fail from here on
    if (hidden != nullptr) {
        std::memcpy(hidden_.data(), hidden, model_->config.hidden * sizeof(uint16_t));
    }
    hidden_valid_ = hidden != nullptr;
    row_valid_ = false;
    tokens_reused_ += growth.reused;
    stored_logits_.reset();
    if (growth.sums != nullptr) {
        sums_.adopt(std::move(growth.sums), log_.size());
    }
    release_outrun(log_.size(), 0);
    for (size_t group = 0; group < pages_.size(); ++group) {
        first_page_[group] = std::max(first_page_[group],
                                      keep_from(model_->groups[group].window, log_.size()) / kPage);
    }
    account();
    tell_pages(PageOrigin::computed);
    tell(TraceKind::append, growth.start, log_.size());
}

// Fills a pass with what is left to do; false: nothing is. What a profile pads is a pass of its
// own, in which it comes first.
bool Session::next_pass(std::span<Growth> growths, size_t rows_max, const Profile *schedule,
                        Workspace &work) {
    work.clear_sequences();
    work.tokens.clear();
    for (Growth &growth : growths) {
        growth.rows = 0;
        if (growth.ended() || work.row_count == rows_max || work.padded != 0) {
            continue;
        }
        const Session &session = *growth.session;
        const ProfilePart part =
            next_part(session.profile_.id, schedule, session.log_.size(),
                      growth.entries.size() - growth.done, rows_max - work.row_count);
        if (part.padded != 0 && work.row_count != 0) {
            continue;
        }
        try {
            growth.session->enter_pass(growth, part, work);
        } catch (...) {
            work.drop_sequences(growth.sequence);
            give_up(growth);
            growth.rows = 0;
        }
    }
    return work.row_count != 0;
}

// What can be told, and taken, before anything is computed.
void Session::begin_growth(Growth &growth, const RunOptions &options, uint64_t &promised) {
    growth.start = growth.session->log_.size();
    growth.settled = growth.entries.empty();
    try {
        growth.session->check_growth(growth);
        if (options.logits == nullptr) {
            growth.session->reuse(growth);
        }
        promised += growth.session->check_room(growth.start + growth.entries.size(), promised);
    } catch (...) {
        give_up(growth);
    }
}

// Settles what the pass, or no pass at all, completed.
void Session::settle_complete(std::span<Growth> growths, const Workspace *work) {
    for (Growth &growth : growths) {
        if (growth.settled || !growth.complete()) {
            continue;
        }
        const uint16_t *hidden = growth.hidden.empty() ? nullptr : growth.hidden.data();
        if (growth.reused != growth.entries.size()) {
            const Sequence &sequence = work->sequences[growth.sequence];
            hidden = work->hidden +
                     (sequence.row + sequence.rows - 1) * growth.session->model_->config.hidden;
        }
        try {
            growth.session->settle(growth, hidden);
            growth.settled = true;
        } catch (...) {
            give_up(growth);
        }
    }
}

void Session::run_passes(Model &model, std::span<Growth> growths, const RunOptions &options,
                         size_t done, size_t total) {
    const size_t chunk = std::min(options.chunk == 0 ? kChunk : options.chunk, kChunkMax);
    WorkspaceLease work(model);
    work->fit(model.config, model.weights.groups, std::min(chunk, total - done));
    while (next_pass(growths, chunk, options.schedule, *work)) {
        forward(model, *work, options.watch, done, total);
        for (Growth &growth : growths) {
            try {
                if (growth.rows != 0) {
                    growth.session->leave_pass(growth, *work, options);
                }
            } catch (...) {
                give_up(growth);
            }
        }
        done += work->row_count;
        options.watch.step(done, total);
        settle_complete(growths, &*work);
    }
}

void Session::grow(Model &model, std::span<Growth> growths, const RunOptions &options) {
    size_t total = 0, done = 0;
    uint64_t promised = 0;
    for (Growth &growth : growths) {
        begin_growth(growth, options, promised);
        if (growth.error == nullptr) {
            total += growth.entries.size();
            done += growth.done;
        }
    }
    if (total == 0) {
        return;
    }
    try {
        options.watch.step(done, total);
        settle_complete(growths, nullptr);
        if (done != total) {
            run_passes(model, growths, options, done, total);
        }
    } catch (...) {
        for (Growth &growth : growths) {
            if (!growth.settled && growth.error == nullptr) {
                give_up(growth);
                growth.ended_call = true;
            }
        }
    }
}

// Computes rows for entries that may follow, none of which is in the log yet: keys and values into
// pages, final hidden states into work.hidden. take_row takes the first of them, again and again;
// roll_back forgets the others. A failure leaves nothing.
// With `run`, only the first token counts, and those behind it are drawn as the pass goes on; what
// fails there is the run's to tell.
void Session::compute_ahead(std::span<const TokenEntry> entries, Workspace &work, DeviceRun *run) {
    Growth growth{this, entries};
    growth.start = log_.size();
    check_growth(growth);
    check_room(growth.start + entries.size(), 0);
    work.fit(model_->config, model_->weights.groups, entries.size());
    work.clear_sequences();
    work.tokens.clear();
    try {
        enter_pass(growth, {entries.size(), 0}, work);
        if (run != nullptr) {
            run_on_device(*model_, work, sampling_, *run);
            return;
        }
        forward(*model_, work);
        if (work.sequences[growth.sequence].failed) {
            fail_sequence(*model_, work.sequences[growth.sequence]);
        }
    } catch (...) {
        roll_back(growth.start);
        tell_pages(PageOrigin::before);
        tell(TraceKind::undone, growth.start, growth.start + entries.size());
        throw;
    }
}

void Session::take_row(const TokenEntry &entry, const uint16_t *hidden) {
    const uint64_t begin = log_.size();
    Growth growth{this, {&entry, 1}};
    growth.start = begin;
    try {
        log_.push_back(entry);
        digest_full_pages(begin, begin + 1);
        make_known(begin, begin + 1, hidden);
        settle(growth, hidden);
    } catch (...) {
        roll_back(begin);
        tell_pages(PageOrigin::before);
        tell(TraceKind::undone, begin, begin + 1);
        throw;
    }
}

void Session::extend(std::span<const TokenEntry> entries, const RunOptions &options) {
    Growth growth{this, entries};
    grow(*model_, {&growth, 1}, options);
    if (growth.error) {
        std::rethrow_exception(growth.error);
    }
}

} // namespace stasis
