// How timelines grow: one session's, or those of many in the same passes. All of a session's
// entries or none; what one meets leaves the others alone.
#include <algorithm>
#include <cstring>

#include "runtime/forward.h"
#include "runtime/session.h"

namespace stasis {

namespace {

constexpr uint64_t kPage = kernels::kPagePositions;
constexpr size_t kChunk = 512; // positions computed together unless the caller says otherwise
constexpr size_t kChunkMax = 4096;

using ull = unsigned long long;

} // namespace

// Calls the caller back with the logits of each row.
void Session::report_logits(Workspace &work, const Sequence &sequence, const RunOptions &options) {
    const size_t vocabulary = model_->config.vocabulary;
    for (size_t row = 0; row < sequence.rows; ++row) {
        const uint64_t position = sequence.begin + row;
        options.watch.look(row, sequence.rows);
        project_logits(*model_, work, work.hidden + (sequence.row + row) * model_->config.hidden, 1,
                       work.logits);
        check_logits(*model_, {work.logits, vocabulary});
        if (!options.logits(options.logits_user, position, work.logits, vocabulary)) {
            fail(Status::stopped, "the logits callback asked to stop at position %llu",
                 ull{position});
        }
    }
}

void Session::check_growth(const Growth &growth) const {
    const uint64_t start = log_.size();
    if (growth.entries.size() > capacity_ - start) {
        fail(Status::full,
             "session full: %zu tokens at position %llu exceed the capacity of %llu positions",
             growth.entries.size(), ull{start}, ull{capacity_});
    }
    // A system call, and so not for every token that is decoded.
    if (growth.entries.size() > 1 || (growth.entries.size() == 1 && start % kPage == 0)) {
        model_->weights.checkpoint.check_unchanged();
    }
}

// The session is as it was, and says why.
void Session::give_up(Growth &growth) noexcept {
    growth.session->roll_back(growth.start);
    growth.error = std::current_exception();
}

// Takes the growth's next rows, at most `rows_max`, into the pass.
void Session::enter_pass(Growth &growth, size_t rows_max, Workspace &work) {
    const uint64_t begin = log_.size();
    growth.sequence = work.sequence_count;
    growth.rows = std::min(rows_max, growth.entries.size() - growth.done);
    make_writable(begin, begin + growth.rows);
    name_pages(work.add_sequence(begin, growth.rows, pages_.size()));
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
    growth.done += growth.rows;
    const uint64_t end = log_.size();
    digest_full_pages(sequence.begin, end);
    release_outrun(end, (growth.start + kPage - 1) / kPage); // undo needs what was at the start
}

// The growth is complete.
void Session::settle(const Growth &growth, Workspace &work) {
    const Sequence &sequence = work.sequences[growth.sequence];
    own_outrun(log_.size()); // so that nothing can fail from here on
    std::memcpy(hidden_.data(),
                work.hidden + (sequence.row + sequence.rows - 1) * model_->config.hidden,
                model_->config.hidden * sizeof(uint16_t));
    hidden_valid_ = true;
    row_valid_ = false;
    stored_logits_.reset();
    release_outrun(log_.size(), 0);
    for (size_t group = 0; group < pages_.size(); ++group) {
        first_page_[group] = std::max(first_page_[group],
                                      keep_from(model_->groups[group].window, log_.size()) / kPage);
    }
    account();
}

// Fills a pass with what is left to do; false: nothing is.
bool Session::next_pass(std::span<Growth> growths, size_t rows_max, Workspace &work) {
    work.clear_sequences();
    work.tokens.clear();
    for (Growth &growth : growths) {
        growth.rows = 0;
        if (growth.ended() || work.row_count == rows_max) {
            continue;
        }
        try {
            growth.session->enter_pass(growth, rows_max - work.row_count, work);
        } catch (...) {
            work.drop_sequences(growth.sequence);
            give_up(growth);
            growth.rows = 0;
        }
    }
    return work.row_count != 0;
}

void Session::grow(Model &model, std::span<Growth> growths, const RunOptions &options) {
    size_t total = 0, done = 0;
    for (Growth &growth : growths) {
        growth.start = growth.session->log_.size();
        growth.settled = growth.entries.empty();
        try {
            growth.session->check_growth(growth);
            total += growth.entries.size();
        } catch (...) {
            growth.error = std::current_exception();
        }
    }
    if (total == 0) {
        return;
    }
    const size_t chunk = std::min(options.chunk == 0 ? kChunk : options.chunk, kChunkMax);
    WorkspaceLease work(model);
    try {
        options.watch.step(0, total);
        work->fit(model.config, model.weights.groups, std::min(chunk, total));
        while (next_pass(growths, chunk, *work)) {
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
            for (Growth &growth : growths) {
                try {
                    if (growth.rows != 0 && growth.complete()) {
                        growth.session->settle(growth, *work);
                        growth.settled = true;
                    }
                } catch (...) {
                    give_up(growth);
                }
            }
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

void Session::extend(std::span<const TokenEntry> entries, const RunOptions &options) {
    Growth growth{this, entries};
    grow(*model_, {&growth, 1}, options);
    if (growth.error) {
        std::rethrow_exception(growth.error);
    }
}

} // namespace stasis
