// One timeline of tokens over a model: the log, the keys and values of its positions, and the
// values that follow from the last one. A value: a copy shares pages and nodes, and costs reference
// counts. Its log advances inside an Append alone: in Append::reuse and accept (sharing.cpp,
// append.cpp), and in take_ahead (ahead.cpp). Knows no sampling, no chat, no file and no host.
//
// Invariants between two calls:
// 1. There is a page table for each group of the network, with one entry for every kPage positions
//    of the log, the last of which may be partial.
// 2. The entry of a full page has the digest of its numbers, also after the page was released.
// 3. A group holds the pages from first_page on, except those that were evicted whole.
// 4. Slots of the last page after the end of the log are zero, or hold what a rewind cut off, or
//    the page is marked unclean.
// 5. A page that another table holds, or that the prefix cache knows, is not written.
// 6. If `shares`, `known` names the last full page in the prefix cache; else it is empty.
// 7. If hidden.valid, hidden.numbers follow from the log; if next.valid, *next.row follows
// from hidden.numbers.
// 8. Chunks of `profile` and evictions are within the log.
// 9. States of recurrent layers are of positions within the log. That after its last position may
//    be missing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "format/state/state.h"
#include "format/state/watch.h"
#include "runtime/compute/network.h"
#include "runtime/kv/page_pool.h"
#include "runtime/timeline/attention_sums.h"
#include "runtime/timeline/evictions.h"
#include "runtime/timeline/held_bytes.h"
#include "runtime/timeline/recurrent_states.h"
#include "runtime/timeline/trace.h"

namespace stasis {

struct Sequence;

struct TimelineOptions {
    static constexpr uint64_t kDefaultRetain = UINT64_MAX;
    static constexpr uint64_t kPrivate = UINT64_MAX; // shares pages with its copies alone

    uint64_t capacity = 0; // positions; 0: the model's context
    // Of a log that was computed before: the side of long RoPE. None: the capacity determines it.
    std::optional<bool> long_rope;
    uint64_t reserve = 0;                    // positions whose memory is allocated at once
    uint64_t window_retain = kDefaultRetain; // positions; one window by default
    uint64_t domain = kPrivate;              // timelines of a domain share pages by their tokens
    bool any_profile = false;                // for a restore: accept pages of another profile
    bool trusted = false;                    // for a restore: the pages follow from the tokens
    bool skip_known = false;                 // for a restore: known pages are not read
    Tracking tracking = Tracking::off;       // of the attention that positions receive
};

struct TimelineInfo {
    uint64_t position, capacity, rewind_floor, window_retain, window_begin;
    uint32_t window;
    uint64_t pages_own, pages_shared, kv_bytes, tokens_reused;
    uint64_t evicted; // positions
    uint64_t foreign; // positions below it were computed under another profile
    uint64_t states;  // of recurrent layers, held by this timeline
};

// The final hidden state of the last position.
struct HiddenState {
    std::vector<uint16_t> numbers; // bf16 [hidden]
    bool valid = false;            // false: the log is empty, or was cut
};

// Logits of the next token.
struct NextLogits {
    std::shared_ptr<std::vector<float>> row; // [vocabulary]; copies may share it
    bool valid = false;
    std::optional<Digest> stored; // from a file: the first row computed must have this digest

    void reset() { valid = false, stored.reset(); }
};

struct Timeline {
    Network *network; // must outlive the timeline
    uint64_t capacity = 0, window_retain = 0;
    // RoPE has its long factors. Never changes, because the keys held depend on it.
    bool long_rope = false;
    uint64_t domain = TimelineOptions::kPrivate;
    bool shares = false; // shares its full pages with timelines of its domain

    TokenLog log;
    std::vector<PageTable> pages;     // [group]
    std::vector<uint64_t> first_page; // [group]
    Evictions evictions;
    Profile profile; // chunks that a device profile computed
    PrefixRef known;
    uint64_t unproven = 0; // positions below it depend on an untrusted file
    uint64_t tokens_reused = 0;
    HiddenState hidden;
    NextLogits next;
    AttentionSums sums;
    RecurrentStates states;
    HeldBytes held;
    TraceRef trace; // copies have none

    // Creates an empty timeline. Throws Error(invalid_argument) for a capacity above the context,
    // Error(unsupported) if sums of attention could overflow, and the errors of PagePool::take.
    Timeline(Network &network_, const TimelineOptions &options);

    uint64_t position() const { return log.size(); }
    TimelineInfo info() const;
    // Takes over everything but the listener of the trace, to which the changed pages are reported.
    // With a trace, no table of `next_` may have more pages than the present one.
    void become(Timeline next_) noexcept;

    // Cuts the log to `position`, which is 0 or not below append_floor(). Strong guarantee.
    void rewind(uint64_t position);
    // Cuts the log in place, not to 0, without allocating. Nothing may be shared with a copy.
    void shorten(uint64_t position) noexcept;
    // Returns the lowest position whose windows are held, and after which nothing was evicted.
    uint64_t append_floor() const;
    // Returns the lowest position, apart from 0, whose logits a rewind can compute from the last
    // token or its chunk alone.
    uint64_t rewind_floor() const;
    // Hides positions [begin, end) from later tokens, and releases pages of which no position is
    // visible. Earlier evictions stay. Throws Error(invalid_argument), and Error(unsupported) if
    // layers are recurrent. Strong guarantee.
    void evict(uint64_t begin, uint64_t end);

    // Computes the final hidden state if it is not valid, by running the last token again, together
    // with its chunk under a profile; with recurrent layers, if it or the state is missing, all
    // positions after the last state before it, and keeps their last state and checkpoints. Throws
    // Error(not_found) for an empty log, Error(diverged) if keys and values differ from those held,
    // and Error(cancelled): what is computed until then is kept.
    void require_hidden(Pass &pass, const Watch &watch = {});
    // Computes the logits of the next token into pass.logits, and returns them. Throws as
    // require_hidden, Error(nonfinite), and Error(diverged) if they differ from the digest in a
    // file.
    std::span<const float> compute_logits(Pass &pass, const Watch &watch = {});
    // Returns the same, cached until the timeline changes.
    const std::vector<float> &logits(const Watch &watch = {});
    // Throws Error(nonfinite) and Error(diverged) as compute_logits does.
    void check_logits_row(std::span<const float> row);

    // Returns the digest of the state (format/state/digest.h); `model` is the digest of the model.
    // Throws as require_hidden.
    Digest digest(const Digest &model, const Watch &watch = {});
    // Returns how many pages of a group the log is in. Rows computed ahead of it may be in more.
    size_t pages_of_log(size_t group) const {
        return std::min<size_t>(pages[group].size(), (log.size() + kPage - 1) / kPage);
    }
    // Returns the digest of the valid slots of a page.
    const Digest &page_digest_of(size_t group, size_t page);

    // Copies keys and values, [end - begin][kv_heads][head_dim] each. Throws Error(not_found) for
    // released positions, Error(unsupported) for a recurrent layer.
    void copy_kv(uint32_t layer, uint64_t begin, uint64_t end, uint16_t *keys,
                 uint16_t *values) const;

    // Stores the accumulated attention of the positions (C10): [position], summed over all query
    // heads of all layers, or [head of all layers][position]. Computes the log again if it was cut
    // or loaded.
    void received(bool by_head, std::vector<uint64_t> &into);
    // Returns the number of rows that `received` stores. Both throw Error(unsupported) if attention
    // is not tracked, or not by head.
    size_t received_heads(bool by_head) const;

    // Starts or ends (null) the trace. The pages held are reported at once. Strong guarantee.
    void set_trace(const TraceListener *listener, PageOrigin origin);
    void tell(TraceKind kind, uint64_t begin, uint64_t end, const Digest &digest_ = {}) const {
        if (trace) {
            trace->operation(kind, begin, end, digest_);
        }
    }
    // Reports changes of the tables since the last report.
    void tell_pages(PageOrigin origin) {
        if (trace) {
            trace->compare(pages, origin);
        }
    }

    // pages.cpp: an Append's operations on pages.
    uint64_t keep_from(uint32_t window, uint64_t position) const;
    uint64_t bytes_missing(uint64_t end) const;
    void make_writable(uint64_t begin, uint64_t end);
    void name_pages(Sequence &sequence) const;
    void digest_full_pages(uint64_t begin, uint64_t end);
    void own_outrun(uint64_t position);
    void release_outrun(uint64_t position, uint64_t from_page) noexcept;
    void cut(uint64_t position);
    void roll_back(uint64_t position) noexcept;
    void clear_beyond(uint64_t position) noexcept;
    void count_held() noexcept;

    // sharing.cpp: sharing full pages between timelines of a domain.
    PrefixRealm realm(uint64_t end) const;
    void make_known(uint64_t begin, uint64_t end, const uint16_t *hidden_rows);
    std::vector<PageRef> find_stored(const State &state, bool trusted, const Watch &watch);
    void offer_stored(bool trusted);

  private:
    void copy_page(PageRef &page);
    void release_evicted(std::span<const PositionRange> ranges);
    void compute_again(Pass &pass, uint64_t begin, uint64_t end, const Watch &watch);
    void check_again(const Timeline &again, uint64_t begin, uint64_t end) const;
    void recompute_sums();
    bool consistent() const;
};

} // namespace stasis
