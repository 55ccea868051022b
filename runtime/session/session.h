// A session: one mutable timeline of tokens over a model. Every function is all or nothing: it
// throws Error and leaves the session as it was. One caller at a time (the ABI keeps the flag).
// Knows neither files nor the ABI; State (format/state/state.h) is how it is exported and restored.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/state/state.h"
#include "format/state/watch.h"
#include "runtime/compute/attention_sums.h"
#include "runtime/kv/page_pool.h"
#include "runtime/kv/stored_pages.h"
#include "runtime/sampling/likelihood.h"
#include "runtime/sampling/sampling.h"
#include "runtime/session/draft.h"
#include "runtime/session/model.h"
#include "runtime/text/chat.h"
#include "runtime/timeline/evictions.h"
#include "runtime/timeline/trace.h"

namespace stasis {

struct SessionOptions {
    uint64_t capacity = 0; // 0: the model's context
    uint64_t reserve = 0;
    uint64_t window_retain = kDefaultRetain; // positions; one window by default
    uint64_t domain = kPrivate;              // sessions that share pages by their tokens
    bool any_profile = false;                // of a restore: also of what another profile computed
    bool trusted = false; // of a restore: what the file holds is what its tokens give
    static constexpr uint64_t kDefaultRetain = UINT64_MAX;
    static constexpr uint64_t kPrivate = UINT64_MAX; // shares with its forks alone
    Tracking tracking = Tracking::off;               // of the attention that positions receive
};

using LogitsFunction = bool (*)(void *user, uint64_t position, const float *logits, size_t count);

struct RunOptions {
    size_t chunk = 0; // 0: chosen
    Watch watch;
    LogitsFunction logits = nullptr;                                // false: stop
    bool (*logits_wanted)(void *user, uint64_t position) = nullptr; // null: all of them
    void *logits_user = nullptr;
    // Compute together what this says, as far as it is there, and all else by the contract; null:
    // what the model's profile calls for.
    const Profile *schedule = nullptr;
};

struct SessionInfo {
    uint64_t position, capacity, rewind_floor, window_retain, window_begin;
    uint32_t window;
    uint64_t pages_own, pages_shared, kv_bytes, pending_bytes, tokens_reused;
    uint64_t evicted; // positions
    uint64_t foreign; // positions below were computed under another profile
};

enum class StopReason : uint32_t { length = 0, end_token, stop_string, callback, cancelled };

struct Generated {
    uint32_t token;
    uint64_t position;
    std::string_view text;
    bool last;
    const LogProbabilities *likely; // of the token; null: not asked for, or last
};

struct GenerateOptions {
    uint64_t tokens_max = 0; // 0: until full
    bool ignore_end = false;
    std::vector<uint32_t> stop_tokens;
    std::vector<std::string> stop_strings;
    bool (*callback)(void *user, const Generated &generated) = nullptr; // false: stop
    void *callback_user = nullptr;
    size_t log_probabilities = 0; // best tokens to tell of with each token; 0: none, nor its own
    Watch watch;
};

struct GenerateResult {
    StopReason reason = StopReason::length;
    uint64_t begin = 0, count = 0;
    // Tokens proposed and those that were drawn then; passes of the model; times a drafter failed.
    uint64_t drafted = 0, accepted = 0, passes = 0, draft_failures = 0;
};

class Session;

// One session's part of a batch: entries to append, and what came of them.
struct Growth {
    Session *session;
    std::span<const TokenEntry> entries;
    std::exception_ptr error = nullptr; // set: the session is as it was
    bool settled = false;               // the entries are in its log, for good
    bool ended_call = false;            // the error is not its own

    // Of what needs no pass: pages taken because their tokens are known.
    size_t reused = 0;                    // entries of them
    std::vector<PageEntry> replaced = {}; // [group] the last page before, if one took its place
    std::vector<uint16_t> hidden = {};    // behind them; empty: not known

    // Of the passes.
    uint64_t start = 0;  // position before
    size_t done = 0;     // entries of passes that are over
    size_t sequence = 0; // its part of the pass, if rows is not 0
    size_t rows = 0;
    AttentionSums::Numbers sums = nullptr; // of a session that tracks attention, this part included

    bool complete() const { return error == nullptr && done == entries.size(); }
    bool ended() const { return error != nullptr || done == entries.size(); }
};

// What one session does in a step: appends tokens, then, if asked to, draws one and appends it.
struct StepItem {
    Session *session;
    std::span<const uint32_t> tokens;
    bool sample = false;
    uint32_t token = 0;                 // the one drawn
    std::exception_ptr error = nullptr; // set: the session is as it was, or lacks only the draw
    bool ended_call = false;            // the error is that of the whole call: cancelled, stopped
    void *owner = nullptr;              // the caller's
};

// What steps need memory for; used again, so that warm ones ask for none.
struct StepBuffers {
    std::vector<StepItem> items; // the caller's to fill
    std::vector<const Session *> sessions;
    std::vector<StepItem *> drawing, growing;
    std::vector<TokenEntry> entries;
    std::vector<Growth> growths;

    void clear();
};

// Buffers for the length of one step; idle ones are reused.
class StepLease {
  public:
    explicit StepLease(Model &model);
    ~StepLease();
    StepLease(const StepLease &) = delete;
    StepLease &operator=(const StepLease &) = delete;
    StepBuffers &operator*() const { return *buffers_; }
    StepBuffers *operator->() const { return buffers_.get(); }

  private:
    Model &model_;
    std::unique_ptr<StepBuffers> buffers_;
};

struct DeviceRun;
struct ProfilePart;
struct Sequence;

class Session {
  public:
    Session(std::shared_ptr<Model> model, const SessionOptions &options);
    ~Session();

    const std::shared_ptr<Model> &model() const { return model_; }
    uint64_t position() const { return log_.size(); }

    void append(std::span<const uint32_t> tokens, const RunOptions &options);
    // What a log says of a session that is empty: tokens, with those of the evictions at their
    // places that lie in it. Progress over all entries.
    void replay(std::span<const TokenEntry> entries, const Evictions &evictions,
                const RunOptions &options);
    void append_message(std::string_view role, std::string_view text, bool reply,
                        const RunOptions &options);

    // Of the next token, [vocabulary], kept until the session changes. Throws not_found before the
    // first position, as do top, sample and decode. After a rewind the last token is run again
    // first. What a loaded session computes first must be what was saved: Error(diverged).
    const std::vector<float> &logits();
    std::vector<std::pair<uint32_t, float>> top(size_t n); // token, log probability
    std::vector<double> score(std::span<const uint32_t> tokens, const RunOptions &options);

    void set_sampling(const Sampling &sampling);
    uint32_t sample();
    uint32_t decode();
    // Whatever ends it, the tokens that `result` counts stay. A stop or a cancel is no exception
    // but a reason; a failure throws, `result` filled all the same.
    void generate(const GenerateOptions &options, GenerateResult &result);

    // What drafts for generate from now on; nothing: none. Throws Error(model_mismatch,
    // invalid_argument). A fork has the same, made anew.
    void set_draft(const std::optional<DraftOptions> &options);
    // A drafter of the caller's own. A fork has what the options say.
    void set_drafter(std::unique_ptr<Drafter> drafter, const DraftOptions &options);

    // Steps of several sessions of one model, computed together; each gives the bits that it gives
    // alone. What an item meets is its error, and leaves the others alone; nothing is thrown.
    // Expects what check_step checks.
    static void step(std::span<StepItem> items, const RunOptions &options);
    // Throws Error(invalid_argument) for sessions of several models, or one twice.
    static void check_step(std::span<const StepItem> items);

    std::unique_ptr<Session> fork();
    void rewind(uint64_t position, bool recompute, const RunOptions &options);
    // For who appends next: a rewind to 0, or to no less than append_floor, behind which nothing
    // may be asked that needs the hidden state there. Throws Error(unsupported) below.
    void rewind_to_append(uint64_t position);
    uint64_t append_floor() const;

    // From here on no token sees positions [begin, end); pages of which nothing is visible any more
    // are released. What was evicted before stays so, and a range of nothing else changes nothing.
    void evict(uint64_t begin, uint64_t end);
    std::span<const Evictions::Event> evictions() const { return evictions_.events(); }

    // [end - begin][kv_heads][head_dim] each; throws not_found if released.
    void copy_kv(uint32_t layer, uint64_t begin, uint64_t end, uint16_t *keys, uint16_t *values);
    // Attention that positions have received since the beginning (C10): [position] from all query
    // heads of all layers, or [layer][head][position]. Computes the log again if it was rewound or
    // loaded. received_heads tells how many rows that is; both throw Error(unsupported) where it is
    // not tracked, or not so.
    void received(bool by_head, std::vector<uint64_t> &sums);
    size_t received_heads(bool by_head) const;
    // Its sums tell of every position since the beginning: no page may come from elsewhere.
    bool tracks_attention() const { return sums_.tracking() != Tracking::off; }
    // What is told of the KV cache from now on, to whom; null: nobody. Copies and forks have none.
    void set_trace(const TraceListener *listener, PageOrigin origin = PageOrigin::before);
    void tell(TraceKind kind, uint64_t begin, uint64_t end, const Digest &digest = {}) const {
        if (trace_) {
            trace_->operation(kind, begin, end, digest);
        }
    }
    SessionInfo info() const;
    TokenEntry entry(uint64_t position) const { return log_[position]; }
    std::string text(uint64_t begin, uint64_t end) const;
    Digest digest();

    // The whole state, pages pinned, not copied.
    State export_state();
    // A session from a state that was read from a file, its pages read straight into place; those
    // that others hold are read as well, and held once. `options` null: as saved. Checks identity
    // element by element (model_mismatch), geometry and digests (corrupt) before anything is
    // created. Progress in bytes of pages.
    static std::unique_ptr<Session> restore(std::shared_ptr<Model> model, const State &state,
                                            const SessionOptions *options, const StoredPages &pages,
                                            const Watch &watch);
    // From a state whose pages lie in memory.
    static std::unique_ptr<Session> restore(std::shared_ptr<Model> model, const State &state,
                                            const SessionOptions *options);
    // The same session from the log alone: keys and values are computed again, and must give the
    // stored digests of all pages, else Error(diverged) names the first position and layer as far
    // as `pages` can tell. Progress in positions.
    static std::unique_ptr<Session> recompute(std::shared_ptr<Model> model, const State &state,
                                              const SessionOptions *options,
                                              const StoredPages &pages, const Watch &watch);

  private:
    friend class Speculation;
    friend class TokenRun;
    friend class ModelDrafter;

    Session(const Session &parent);

    // session_grow.cpp: the one place where timelines grow. Failures go to the growths, each its
    // own; what ends the call, to all that are not settled.
    static void grow(Model &model, std::span<Growth> growths, const RunOptions &options);
    void extend(std::span<const TokenEntry> entries, const RunOptions &options);
    static bool next_pass(std::span<Growth> growths, size_t rows_max, const Profile *schedule,
                          Workspace &work);
    static void give_up(Growth &growth) noexcept;
    void check_capacity(uint64_t tokens, bool at_least) const; // throws Error(full)
    void check_growth(const Growth &growth) const;
    uint64_t check_room(uint64_t end, uint64_t promised) const;
    void enter_pass(Growth &growth, const ProfilePart &part, Workspace &work);
    void leave_pass(Growth &growth, Workspace &work, const RunOptions &options);
    static void begin_growth(Growth &growth, const RunOptions &options, uint64_t &promised);
    static void run_passes(Model &model, std::span<Growth> growths, const RunOptions &options,
                           size_t done, size_t total);
    static void settle_complete(std::span<Growth> growths, const Workspace *work);
    void settle(Growth &growth, const uint16_t *hidden);
    void compute_ahead(std::span<const TokenEntry> entries, Workspace &work,
                       DeviceRun *run = nullptr);
    void take_row(const TokenEntry &entry, const uint16_t *hidden);
    void report_logits(Workspace &work, const Sequence &sequence, const RunOptions &options);

    // session_evict.cpp
    void release_evicted(std::span<const PositionRange> ranges);

    // session.cpp
    void add_entries(std::span<const uint32_t> tokens, std::vector<TokenEntry> &entries) const;
    void require_hidden(Workspace &work);
    void go_back(uint64_t position);
    void check_again(const Session &again, uint64_t begin) const;
    void swap_timeline(Session &other);

    // What the trace has not been told of the pages yet.
    void tell_pages(PageOrigin origin) {
        if (trace_) {
            trace_->compare(pages_, origin);
        }
    }

    // session_pages.cpp
    void copy_page(PageRef &page);
    void make_writable(uint64_t begin, uint64_t end);
    void name_pages(Sequence &sequence) const;
    void digest_full_pages(uint64_t begin, uint64_t end);
    void own_outrun(uint64_t position);
    void release_outrun(uint64_t position, uint64_t from_page) noexcept;
    void roll_back(uint64_t position) noexcept;
    void clear_beyond(uint64_t position) noexcept;
    void cut(uint64_t position);
    void shorten(uint64_t position) noexcept;
    uint64_t rewind_floor() const;
    void account();
    uint64_t bytes_missing(uint64_t end) const;
    uint64_t keep_from(uint32_t window, uint64_t position) const;

    // session_attention.cpp
    void recompute_sums();

    // session_prefixes.cpp
    void reuse(Growth &growth);
    void make_known(uint64_t begin, uint64_t end, const uint16_t *hidden);
    std::vector<PageRef> find_stored(const State &state, const Watch &watch);
    void offer_stored();
    PrefixRealm realm(uint64_t end) const;

    // session_generate.cpp
    void next_logits(Workspace &work, std::span<float> row);
    uint32_t draw(Workspace &work);
    uint32_t draw_from(Workspace &work, std::span<const float> row);
    uint32_t decode_with(size_t count, LogProbabilities &likely);
    void check_stored(std::span<const float> row);
    TokenEntry drawn_entry(uint32_t token);

    // session_speculate.cpp
    Drafting *begin_drafting(GenerateResult &result);

    // session_step.cpp
    static void step_round(Model &model, std::span<StepItem> items, bool behind,
                           const RunOptions &options, StepBuffers &buffers);
    static void draw_together(Model &model, std::vector<StepItem *> &items);
    static void collect_growths(std::span<StepItem> items, bool behind, StepBuffers &buffers);
    void drop_unnamed_samplings();
    uint16_t sampling_index();
    uint8_t next_turn(bool sampled) const;
    bool is_stop(uint32_t token, const GenerateOptions &options) const;
    bool reply_open() const;

    // session_chat.cpp
    ChatPosition chat_position() const;

    // snapshot/export.cpp
    const Digest &digest_of(size_t group, size_t page);
    void export_log(State &state) const;
    void export_pages(State &state);

    // snapshot/restore.cpp
    static std::unique_ptr<Session> prepare(std::shared_ptr<Model> model, const State &state,
                                            const SessionOptions *options, const Watch &watch);
    void adopt_settings(const State &state);
    void adopt_pages(const State &state, const StoredPages &pages, const Watch &watch);
    void check_digest(const State &state);
    void check_pages(const State &state, const StoredPages &pages, const Watch &watch);

    std::shared_ptr<Model> model_;
    uint64_t capacity_ = 0, window_retain_ = 0;
    uint64_t domain_ = SessionOptions::kPrivate;
    bool shares_ = false;  // gives its full pages to others, and takes theirs
    bool trusted_ = false; // restored from a file whose pages count as computed
    PrefixRef known_;      // the last full page, if it shares and there is one
    uint64_t tokens_reused_ = 0;
    uint64_t unproven_ = 0; // positions below may be what an untrusted file says
    TokenLog log_;
    Profile profile_;
    std::vector<PageTable> pages_;     // [group]
    std::vector<uint64_t> first_page_; // [group] first page still held
    Evictions evictions_;
    std::vector<uint16_t> hidden_;            // bf16, of the last position
    bool hidden_valid_ = false;               // false: nothing appended, or rewound since
    std::shared_ptr<std::vector<float>> row_; // logits of the next token, if row_valid_
    bool row_valid_ = false;
    std::optional<Digest> stored_logits_; // what the first row computed must give
    std::vector<Sampling> samplings_; // settings that drew some token of the log, or of what was
                                      // rewound
    Sampling sampling_;
    std::string pending_system_;
    AttentionSums sums_;
    uint64_t held_bytes_ = 0; // this session's part of Model::held_bytes
    std::optional<DraftOptions> draft_;
    std::shared_ptr<Drafting> drafting_; // null: not made yet; shared with passing copies only
    TraceRef trace_;
};

// For a session of that capacity. Throws Error(unsupported) where sums could overflow.
AttentionSums tracked_sums(const Model &model, const SessionOptions &options, uint64_t capacity);

// Checks that a snapshot's identity is the model's; throws Error(model_mismatch) naming the first
// of the Big 8 + 4 that differs and both values ("attention module weights differ: layer 3 ...").
void check_identity(const ModelIdentity &stored, const ModelIdentity &model);

// Checks the shape of a stored state against the model and this build: model_mismatch or version.
void check_geometry(const State &state, const Model &model);

} // namespace stasis
