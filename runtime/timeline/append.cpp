// The transaction by which timelines grow; see append.h. In order: capacity, pages, passes, the
// log, the commit, and how all of it is undone.
#include "runtime/timeline/append.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "runtime/compute/forward.h"
#include "runtime/compute/profile.h"

namespace stasis {

namespace {

// Calls the caller back with the logits of each row.
void report_logits(const Network &network, Pass &pass, const Sequence &sequence,
                   const AppendOptions &options) {
    const size_t vocabulary = network.config.vocabulary;
    for (size_t row = 0; row < sequence.rows; ++row) {
        const uint64_t position = sequence.begin + row;
        options.watch.look(row, sequence.rows);
        if (options.logits_wanted != nullptr &&
            !options.logits_wanted(options.logits_user, position)) {
            continue;
        }
        project_logits(pass, pass.hidden + (sequence.row + row) * network.config.hidden, 1,
                       pass.logits);
        check_logits(network, {pass.logits, vocabulary});
        if (!options.logits(options.logits_user, position, pass.logits, vocabulary)) {
            fail(Status::stopped, "the logits callback asked to stop at position %llu",
                 Number{position});
        }
    }
}

} // namespace

void check_capacity(const Timeline &timeline, uint64_t tokens, bool at_least) {
    const uint64_t start = timeline.position();
    if (tokens > timeline.capacity - start) {
        fail(Status::full,
             "session full: %s%llu tokens at position %llu exceed the capacity of %llu positions",
             at_least ? "at least " : "", Number{tokens}, Number{start}, Number{timeline.capacity});
    }
}

void Append::check_size() const {
    check_capacity(*timeline, entries.size(), false);
    // The check is a system call, so it is not made for every token that is decoded.
    if (entries.size() > 1 || (entries.size() == 1 && start % kPage == 0)) {
        timeline->network->weights.check_unchanged();
    }
}

// Returns the least number of bytes of pages needed; 0 without a budget. Throws
// Error(pool_exhausted) if the pool has not that many beside those promised to other appends. The
// append may need more later, and other callers may take the bytes first.
uint64_t Append::bytes_needed(uint64_t promised) const {
    const PagePool &pool = *timeline->network->pool;
    const uint64_t left = pool.room_bytes();
    if (left == UINT64_MAX) {
        return 0;
    }
    const uint64_t end = start + entries.size();
    const uint64_t needed = timeline->bytes_missing(end);
    if (needed > left || promised > left - needed) {
        fail(Status::pool_exhausted,
             "KV pool exhausted: %llu of %llu bytes in use or promised, %llu tokens need %llu more",
             Number{pool.budget_bytes() - left + promised}, Number{pool.budget_bytes()},
             Number{end - timeline->position()}, Number{needed});
    }
    return needed;
}

void Append::reserve(bool reuses, uint64_t &promised) {
    assert(!reserved && (!ended() || entries.empty()));
    reserved = true;
    start = timeline->position();
    committed = entries.empty();
    check_size();
    if (reuses) {
        reuse();
    }
    promised += bytes_needed(promised);
}

void Append::compute_state(const Watch &watch) {
    PassLease pass(*timeline->network);
    timeline->require_hidden(*pass, watch);
}

// Memory for the state after the rows, and for those at the checkpoints within them. Where the
// budget does not suffice, the last checkpoints have it.
void Append::stage_states(Sequence &staged) {
    RecurrentStates &states = timeline->states;
    PagePool &pool = *timeline->network->pool;
    staged.state = states.at(staged.begin).numbers(); // null at 0
    next_states.clear();
    next_states.push_back(states.take(start, pool));
    staged.next_states.push_back({rows, next_states[0].writable()});
    for (uint64_t at = last_checkpoint(staged.begin + rows - 1); at > staged.begin;
         at -= kCheckpointPositions) {
        StateRef state = states.take_spare(start, pool);
        if (!state) {
            break;
        }
        staged.next_states.push_back({at - staged.begin, state.writable()});
        next_states.push_back(std::move(state));
    }
    std::reverse(next_states.begin(), next_states.end());
    std::reverse(staged.next_states.begin(), staged.next_states.end());
}

void Append::stage(const ProfilePart &part, Pass &pass) {
    Timeline &own = *timeline;
    const uint64_t begin = own.position();
    sequence = pass.sequence_count;
    rows = part.rows;
    pass.fit(part.padded);

    // Pages for the rows, and the rows in the pass.
    own.make_writable(begin, begin + rows);
    own.tell_pages(PageOrigin::computed);
    Sequence &staged = pass.add_sequence(begin, rows, own.pages.size());
    pass.padded = part.padded;
    own.name_pages(staged);
    if (own.trace) {
        own.trace->reads(staged);
    }

    if (own.states.used()) {
        stage_states(staged);
    }
    if (sums == nullptr && own.sums.collecting(begin)) {
        sums = own.sums.grown(start + entries.size());
    }
    if (sums != nullptr) {
        staged.sums = sums->data();
        staged.sum_rows = own.sums.rows();
    }
    for (const TokenEntry &entry : entries.subspan(done, rows)) {
        pass.tokens.push_back(entry.token);
    }
}

void Append::accept(Pass &pass, const AppendOptions &options) {
    Timeline &own = *timeline;
    const Sequence &staged = pass.sequences[sequence];
    if (staged.failed) {
        fail_sequence(*own.network, staged);
    }
    if (options.logits != nullptr) {
        report_logits(*own.network, pass, staged, options);
    }

    // The log and the chunks advance.
    for (const TokenEntry &entry : entries.subspan(done, rows)) {
        own.log.push_back(entry);
    }
    if (pass.padded != 0) {
        own.profile.chunks.push_back(
            {staged.begin, static_cast<uint32_t>(rows), static_cast<uint32_t>(pass.padded)});
    }
    done += rows;
    const uint64_t end = own.position(), first = start / kPage;
    const uint16_t *computed = pass.hidden + staged.row * own.network->config.hidden;
    if (options.hidden != nullptr) {
        options.hidden(options.hidden_user, own, staged.begin, computed, rows);
    }
    for (size_t i = 0; i < next_states.size(); ++i) {
        own.states.add(staged.begin + staged.next_states[i].rows, std::move(next_states[i]), start);
    }

    // Full pages get their digests, and may be shared.
    if (own.shares && start % kPage != 0 && replaced.empty() && first < end / kPage) {
        for (const PageTable &table : own.pages) { // a known page may replace it
            replaced.push_back(table[first]);
        }
    }
    own.digest_full_pages(staged.begin, end);
    own.make_known(staged.begin, end, computed);
    own.release_outrun(end, (start + kPage - 1) / kPage); // abort needs the pages of the start
    own.tell_pages(PageOrigin::computed);
}

void Append::commit(const uint16_t *last_hidden) {
    Timeline &own = *timeline;
    assert(complete() && !committed);
    const uint64_t end = own.position();
    own.own_outrun(end); // nothing below can fail

    if (last_hidden != nullptr) {
        std::copy_n(last_hidden, own.network->config.hidden, own.hidden.numbers.data());
    }
    own.hidden.valid = last_hidden != nullptr;

    // The state that follows from the last position.
    own.next.reset();
    own.tokens_reused += reused;
    if (sums != nullptr) {
        own.sums.adopt(std::move(sums), end);
    }

    own.states.thin(end);

    // Pages that no window needs any more.
    own.release_outrun(end, 0);
    for (size_t group = 0; group < own.pages.size(); ++group) {
        const uint32_t window = own.network->groups[group].window;
        own.first_page[group] = std::max(own.first_page[group], own.keep_from(window, end) / kPage);
    }
    own.count_held();
    own.tell_pages(PageOrigin::computed);
    own.tell(TraceKind::append, start, end);
    committed = true;
}

void Append::abort() noexcept {
    Timeline &own = *timeline;
    assert(std::current_exception() != nullptr);
    own.roll_back(start);
    next_states.clear();
    for (size_t group = 0; group < replaced.size(); ++group) { // the entries' paths are its own
        own.pages[group].mutate(start / kPage) = std::move(replaced[group]);
    }
    own.clear_beyond(start);
    error = std::current_exception();
    own.tell_pages(PageOrigin::before); // at most as many as at the start, so nothing can fail
    own.tell(TraceKind::undone, start, start + entries.size());
}

namespace {

// Calls a step of an append, and aborts the append if it throws.
template <typename Step> void guard(Append &append, const Step &step) noexcept {
    try {
        step();
    } catch (...) {
        append.abort();
    }
}

// Fills a pass with rows that remain to be computed. Returns false if there are none. A part that a
// profile pads needs a pass of its own, so it is staged only into an empty pass.
bool stage_pass(std::span<Append> appends, size_t rows_max, const Profile *schedule, Pass &pass) {
    pass.clear();
    for (Append &each : appends) {
        each.rows = 0;
        if (each.ended() || each.slice == 0 || pass.row_count == rows_max || pass.padded != 0) {
            continue;
        }
        const ProfilePart part = next_part(
            each.timeline->profile.id, schedule, each.timeline->position(),
            each.entries.size() - each.done, std::min(each.slice, rows_max - pass.row_count));
        if (part.padded != 0 && pass.row_count != 0) {
            continue;
        }
        guard(each, [&] { each.stage(part, pass); });
        if (each.error != nullptr) {
            pass.drop_sequences(each.sequence);
            each.rows = 0;
        }
    }
    return pass.row_count != 0;
}

// Commits the appends that the pass completed, or, if `pass` is null, those whose entries the
// prefix cache has all.
void commit_complete(std::span<Append> appends, const Pass *pass) {
    for (Append &each : appends) {
        if (each.committed || !each.complete()) {
            continue;
        }
        const uint16_t *hidden = each.hidden.empty() ? nullptr : each.hidden.data();
        if (each.reused != each.entries.size()) {
            const Sequence &staged = pass->sequences[each.sequence];
            hidden = pass->hidden +
                     (staged.row + staged.rows - 1) * each.timeline->network->config.hidden;
        }
        guard(each, [&] { each.commit(hidden); });
    }
}

// Runs passes until every append is complete or has failed. `done` of `total` positions are
// finished.
void run_passes(const Network &network, std::span<Append> appends, const AppendOptions &options,
                size_t done, size_t total) {
    const size_t chunk = std::min(options.chunk == 0 ? kChunk : options.chunk, kChunkMax);
    PassLease pass(network);
    pass->fit(std::min(chunk, total - done));
    while (stage_pass(appends, chunk, options.schedule, *pass)) {
        forward(*pass, options.watch, done, total);
        for (Append &each : appends) {
            if (each.rows != 0) {
                guard(each, [&] { each.accept(*pass, options); });
            }
        }
        done += pass->row_count;
        options.watch.step(done, total);
        commit_complete(appends, &*pass);
    }
}

// Computes the states that rewinds have cut off. `done` of `total` positions are finished.
void compute_states(std::span<Append> appends, const Watch &watch, size_t done, size_t total) {
    for (Append &each : appends) {
        if (each.ended() || each.timeline->states.holds(each.timeline->position())) {
            continue;
        }
        guard(each, [&] { each.compute_state(watch); });
        each.ended_call = each.error != nullptr && watch.ends();
        watch.look(done, total);
    }
}

// Ends the call for every append that is not committed. Call it inside a catch block.
void end_call(std::span<Append> appends) noexcept {
    for (Append &each : appends) {
        if (!each.committed && each.error == nullptr) {
            each.abort();
            each.ended_call = true;
        }
    }
}

// Runs passes until each append has computed its slice, or is complete.
void run_slices(std::span<Append> appends, Pass &pass) {
    size_t rows = 0;
    for (const Append &each : appends) {
        rows += each.ended() ? 0 : std::min(each.slice, each.entries.size() - each.done);
    }
    pass.fit(rows);
    while (stage_pass(appends, rows, nullptr, pass)) {
        forward(pass, {}, 0, 0);
        for (Append &each : appends) {
            if (each.rows != 0) {
                guard(each, [&] { each.accept(pass, {}); });
                each.slice = each.slice == SIZE_MAX ? SIZE_MAX : 0;
            }
        }
        commit_complete(appends, &pass);
    }
}

} // namespace

void append_together(Network &network, std::span<Append> appends, const AppendOptions &options) {
    size_t total = 0, done = 0;

    // Each append reserves for itself; a failure ends that append alone.
    uint64_t promised = 0;
    for (Append &each : appends) {
        guard(each, [&] { each.reserve(options.logits == nullptr, promised); });
        if (each.error == nullptr) {
            total += each.entries.size();
            done += each.done;
        }
    }
    if (total == 0) {
        return;
    }
    try {
        options.watch.step(done, total);
        commit_complete(appends, nullptr);
        compute_states(appends, options.watch, done, total);
        if (done != total) {
            run_passes(network, appends, options, done, total);
        }
    } catch (...) {
        end_call(appends);
    }
}

void advance_together(Network &network, std::span<Append> appends) {
    uint64_t promised = 0;
    for (Append &each : appends) {
        if (!each.reserved) {
            guard(each, [&] { each.reserve(true, promised); });
        }
    }
    try {
        commit_complete(appends, nullptr);
        compute_states(appends, {}, 0, 0);
        PassLease pass(network);
        run_slices(appends, *pass);
    } catch (...) {
        end_call(appends);
    }
}

void append(Timeline &timeline, std::span<const TokenEntry> entries, const AppendOptions &options) {
    Append one{&timeline, entries};
    append_together(*timeline.network, {&one, 1}, options);
    if (one.error) {
        std::rethrow_exception(one.error);
    }
}

void replay(Timeline &timeline, std::span<const TokenEntry> entries, const Evictions &evictions,
            const AppendOptions &options) {
    if (options.schedule != nullptr) {
        check_computable(*options.schedule);
    }
    const auto append_to = [&](uint64_t end) {
        const uint64_t begin = timeline.position();
        WatchPart part{options.watch, begin, entries.size()};
        AppendOptions run = options;
        run.watch = part.watch();
        append(timeline, entries.subspan(begin, end - begin), run);
    };
    for (const Evictions::Event &eviction : evictions.events()) {
        if (eviction->position > entries.size()) {
            break;
        }
        append_to(eviction->position);
        for (const PositionRange &range : eviction->ranges) {
            timeline.evict(range.begin, range.end);
        }
    }
    append_to(entries.size());
}

Timeline computed_again(const Timeline &timeline, uint64_t position, TimelineOptions options,
                        const AppendOptions &run) {
    assert(position <= timeline.position());
    options.long_rope = timeline.long_rope;
    Timeline again(*timeline.network, options);
    std::vector<TokenEntry> entries(position);
    for (uint64_t i = 0; i < position; ++i) {
        entries[i] = timeline.log[i];
    }
    AppendOptions scheduled = run;
    scheduled.logits = nullptr;
    scheduled.schedule = &timeline.profile;
    replay(again, entries, timeline.evictions, scheduled);
    return again;
}

} // namespace stasis
