// The transaction by which tokens enter a timeline: all entries of an append enter the log, or
// none. take_ahead (ahead.h) uses it for one row that is computed already. Knows neither sampling
// nor sessions.
#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include "format/state/state.h"
#include "format/state/watch.h"
#include "runtime/compute/pass.h"
#include "runtime/timeline/timeline.h"

namespace stasis {

struct ProfilePart;

// Takes the logits [count] that follow a position. Returns false to stop.
using LogitsFunction = bool (*)(void *user, uint64_t position, const float *logits, size_t count);
// Takes the final hidden states [rows][hidden] of a timeline's positions from `begin` on, which its
// log has.
using HiddenFunction = void (*)(void *user, const Timeline &timeline, uint64_t begin,
                                const uint16_t *hidden, size_t rows) noexcept;

inline constexpr size_t kChunk = 512;     // default positions of a pass
inline constexpr size_t kChunkMax = 4096; // the most

struct AppendOptions {
    size_t chunk = 0; // positions of a pass at most; 0: the default
    Watch watch;
    LogitsFunction logits = nullptr;
    bool (*logits_wanted)(void *user, uint64_t position) = nullptr; // null: those of all positions
    void *logits_user = nullptr;
    HiddenFunction hidden = nullptr; // not called for what the cache has
    void *hidden_user = nullptr;
    // The parts to compute together, as far as the schedule extends; later positions follow the
    // contract. Null: the timeline's own profile decides.
    const Profile *schedule = nullptr;
};

// One transaction on one timeline, in this order: reserve; stage a pass, run it and accept it,
// until the append is complete; commit. Abort undoes all of it, at any time before commit has
// returned. Every function but abort may throw; the caller then calls abort.
struct Append {
    Timeline *timeline;
    std::span<const TokenEntry> entries;
    std::exception_ptr error = nullptr; // set: aborted, the timeline is as it was
    bool committed = false;
    bool ended_call = false; // the error is that of the whole call

    // Results of the prefix cache.
    size_t reused = 0; // entries
    std::vector<PageEntry> replaced =
        {};                            // [group] the partial page before, if another took its place
    std::vector<uint16_t> hidden = {}; // final hidden state after them; empty: none

    // Results of the passes.
    uint64_t start = 0;  // position before
    size_t done = 0;     // entries computed or reused
    size_t sequence = 0; // index in the pass, if rows is not 0
    size_t rows = 0;     // in the pass
    AttentionSums::Numbers sums =
        nullptr; // of a timeline that tracks attention, these rows included
    std::vector<StateRef> next_states = {}; // of recurrent layers, as in the pass's sequence

    // Of an append that grows over several calls (advance_together).
    size_t slice = SIZE_MAX; // most rows in this call; SIZE_MAX: all of them
    bool reserved = false;   // it has begun

    bool complete() const { return error == nullptr && done == entries.size(); }
    bool ended() const { return error != nullptr || done == entries.size(); }

    // Throws Error(full), Error(pool_exhausted) or Error(model_mismatch) for an append that cannot
    // succeed. If `reuses`, takes pages that the prefix cache knows, which advances the log. Adds
    // the bytes of pages that it will need to `promised`.
    void reserve(bool reuses, uint64_t &promised);
    // Computes the state before the next rows, which a rewind has cut off.
    void compute_state(const Watch &watch);
    // Adds the next rows to the pass, and makes their pages writable.
    void stage(const ProfilePart &part, Pass &pass);
    // Takes over the results of the pass: the log advances.
    void accept(Pass &pass, const AppendOptions &options);
    // Completes the transaction. `last_hidden` null: the final hidden state is computed on demand.
    void commit(const uint16_t *last_hidden);
    // Undoes the append. Call it inside a catch block: the current exception becomes `error`.
    void abort() noexcept;

  private:
    void stage_states(Sequence &staged);
    void check_size() const;
    uint64_t bytes_needed(uint64_t promised) const;
    void reuse();
};

// Throws Error(full) unless `tokens` more tokens fit; `at_least`: more may follow.
void check_capacity(const Timeline &timeline, uint64_t tokens, bool at_least);

// Runs appends of different timelines of one network in the same passes. Each fails alone; an error
// that ends the call ends all that are not committed. Throws nothing.
void append_together(Network &network, std::span<Append> appends, const AppendOptions &options);

// Runs appends for one call, in which each computes at most its slice: one that has neither failed
// nor been committed goes on in a later call. An error that ends the call ends all that are not
// committed. Profiles fix parts of their own, which may be longer than a slice. Throws nothing.
void advance_together(Network &network, std::span<Append> appends);

// Runs one append, and throws its error. Strong guarantee.
void append(Timeline &timeline, std::span<const TokenEntry> entries, const AppendOptions &options);

// Appends the entries after the timeline's position, and repeats the evictions at their positions.
// Reports progress over all entries. Basic guarantee.
void replay(Timeline &timeline, std::span<const TokenEntry> entries, const Evictions &evictions,
            const AppendOptions &options);

// Returns a timeline of the first positions of another, computed from the log alone, with the same
// evictions and the other's schedule. Ignores the logits and the schedule of `run`.
Timeline computed_again(const Timeline &timeline, uint64_t position, TimelineOptions options,
                        const AppendOptions &run);

} // namespace stasis
