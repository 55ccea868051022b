// How timelines grow: all entries of an append enter the log, or none.
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

// Receives the logits [count] that follow a position. False: stop.
using LogitsFunction = bool (*)(void *user, uint64_t position, const float *logits, size_t count);

struct AppendOptions {
    size_t chunk = 0; // positions of a pass at most; 0: chosen
    Watch watch;
    LogitsFunction logits = nullptr;
    bool (*logits_wanted)(void *user, uint64_t position) = nullptr; // null: those of all positions
    void *logits_user = nullptr;
    // What to compute together, as far as it says; the rest is computed by the contract. Null: what
    // the timeline's profile calls for.
    const Profile *schedule = nullptr;
};

// One transaction on one timeline. In order: reserve; stage a pass, run it, accept it, until the
// append is complete; commit. Abort undoes all of it, at any time before commit has returned. Every
// function but abort may throw, and expects abort then.
struct Append {
    Timeline *timeline;
    std::span<const TokenEntry> entries;
    std::exception_ptr error = nullptr; // set: aborted, the timeline is as it was
    bool committed = false;
    bool ended_call = false; // the error is that of the whole call

    // What the prefix cache gave.
    size_t reused = 0; // entries
    std::vector<PageEntry> replaced =
        {};                            // [group] the partial page before, if another took its place
    std::vector<uint16_t> hidden = {}; // final hidden state after them; empty: not known

    // What the passes gave.
    uint64_t start = 0;  // position before
    size_t done = 0;     // entries computed or reused
    size_t sequence = 0; // index in the pass, if rows is not 0
    size_t rows = 0;     // in the pass
    AttentionSums::Numbers sums =
        nullptr; // of a timeline that tracks attention, these rows included

    bool complete() const { return error == nullptr && done == entries.size(); }
    bool ended() const { return error != nullptr || done == entries.size(); }

    // Throws Error(full), Error(pool_exhausted), Error(model_mismatch): refuses at once what cannot
    // end well. Takes pages that the prefix cache knows, if `reuses`. Adds to `promised` the bytes
    // of pages that it will need.
    void reserve(bool reuses, uint64_t &promised);
    // Adds the next rows to the pass, their pages writable.
    void stage(const ProfilePart &part, Pass &pass);
    // Takes over what the pass computed: the log advances.
    void accept(Pass &pass, const AppendOptions &options);
    // `last_hidden` null: the final hidden state is computed when it is needed.
    void commit(const uint16_t *last_hidden);
    // Expects an exception in flight, which becomes `error`.
    void abort() noexcept;

  private:
    void check_size() const;
    uint64_t bytes_needed(uint64_t promised) const;
    void reuse();
};

// Throws Error(full) unless so many more tokens fit; `at_least`: more may come.
void check_capacity(const Timeline &timeline, uint64_t tokens, bool at_least);

// Runs appends of different timelines of one network in the same passes. Each fails alone; an error
// that ends the call goes to all that are not committed. Nothing is thrown.
void append_together(Network &network, std::span<Append> appends, const AppendOptions &options);

// One append. Strong guarantee.
void append(Timeline &timeline, std::span<const TokenEntry> entries, const AppendOptions &options);

// Appends to a timeline the entries after its position, with the evictions at their places.
// Progress over all entries. Basic guarantee.
void replay(Timeline &timeline, std::span<const TokenEntry> entries, const Evictions &evictions,
            const AppendOptions &options);

// Returns a timeline of the first positions of another, computed from the log alone, with what was
// evicted in them and the other's schedule. Of `run`, logits and schedule mean nothing.
Timeline computed_again(const Timeline &timeline, uint64_t position, const TimelineOptions &options,
                        const AppendOptions &run);

} // namespace stasis
