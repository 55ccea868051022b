// A session: a timeline over a model, with the settings that draw its next tokens, a drafter and a
// trace. Every function is all or nothing: it throws Error and leaves the session as it was. One
// caller at a time; the ABI keeps the flag. It knows neither files nor the ABI.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/state/state.h"
#include "runtime/session/draft.h"
#include "runtime/session/generation.h"
#include "runtime/session/model.h"
#include "runtime/session/settings.h"
#include "runtime/text/chat.h"
#include "runtime/timeline/append.h"

namespace stasis {

struct SessionInfo : TimelineInfo {
    uint64_t pending_bytes; // of a system text that waits for the first user's turn
};

class Session {
  public:
    // Throws as Timeline's constructor.
    Session(std::shared_ptr<Model> model, const TimelineOptions &options);
    // Expects a timeline over the model.
    Session(std::shared_ptr<Model> model, Timeline timeline, Settings settings);
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;

    const std::shared_ptr<Model> &model() const { return model_; }
    Timeline &timeline() { return timeline_; }
    const Timeline &timeline() const { return timeline_; }
    Settings &settings() { return settings_; }
    const Settings &settings() const { return settings_; }
    uint64_t position() const { return timeline_.position(); }
    SessionInfo info() const { return {timeline_.info(), settings_.pending_system.size()}; }
    TokenEntry entry(uint64_t position) const { return timeline_.log[position]; }
    std::string text(uint64_t begin, uint64_t end) const;
    Digest digest() { return timeline_.digest(model_->identity.model); }

    void append(std::span<const uint32_t> tokens, const AppendOptions &options);
    void append_message(std::string_view role, std::string_view text, bool reply,
                        const AppendOptions &options);
    // Adds the entries that the log will hold for tokens that the caller gives. Throws
    // Error(invalid_argument). Strong guarantee.
    void add_entries(std::span<const uint32_t> tokens, std::vector<TokenEntry> &entries) const;

    // Logits of the next token, [vocabulary], kept until the session changes. Throws not_found
    // before the first position, as do top, sample and decode. After a rewind the last token is run
    // again first. What a loaded session computes first must be what was saved: Error(diverged).
    const std::vector<float> &logits() { return timeline_.logits(); }
    std::vector<std::pair<uint32_t, float>> top(size_t n); // token, log-probability
    std::vector<double> score(std::span<const uint32_t> tokens, const AppendOptions &options);

    void set_sampling(const Sampling &sampling);
    uint32_t sample();
    uint32_t decode();
    // Whatever ends it, the tokens that `result` counts stay. A stop or a cancel is no exception
    // but a reason; a failure throws, `result` filled all the same.
    void generate(const GenerateOptions &options, GenerateResult &result);
    // Returns the entry of a token drawn next. Throws Error(full).
    TokenEntry drawn_entry(uint32_t token);

    // Sets what drafts for generate from now on; nothing: none. Throws Error(model_mismatch,
    // invalid_argument). A fork has the same, made anew.
    void set_draft(const std::optional<DraftOptions> &options);
    // Sets a drafter of the caller's own. A fork has what the options say.
    void set_drafter(std::unique_ptr<Drafter> drafter, const DraftOptions &options);
    const std::optional<DraftOptions> &draft() const { return draft_; }

    std::unique_ptr<Session> fork();
    void rewind(uint64_t position, bool recompute, const AppendOptions &options);
    void evict(uint64_t begin, uint64_t end) { timeline_.evict(begin, end); }
    std::span<const Evictions::Event> evictions() const { return timeline_.evictions.events(); }

    void copy_kv(uint32_t layer, uint64_t begin, uint64_t end, uint16_t *keys,
                 uint16_t *values) const {
        timeline_.copy_kv(layer, begin, end, keys, values);
    }
    void received(bool by_head, std::vector<uint64_t> &sums) { timeline_.received(by_head, sums); }
    size_t received_heads(bool by_head) const { return timeline_.received_heads(by_head); }
    bool tracks_attention() const { return timeline_.sums.tracking() != Tracking::off; }

    // See Timeline::set_trace. A fork has none.
    void set_trace(const TraceListener *listener, PageOrigin origin = PageOrigin::before) {
        timeline_.set_trace(listener, origin);
    }
    void tell(TraceKind kind, uint64_t begin, uint64_t end, const Digest &digest = {}) const {
        timeline_.tell(kind, begin, end, digest);
    }

  private:
    Drafting *begin_drafting(GenerateResult &result);
    bool is_stop(uint32_t token, const GenerateOptions &options) const;
    bool reply_open() const;
    uint8_t next_turn(bool sampled) const;
    ChatPosition chat_position() const;

    std::shared_ptr<Model> model_; // outlives the timeline
    Timeline timeline_;
    Settings settings_;
    std::optional<DraftOptions> draft_;
    std::unique_ptr<Drafting> drafting_; // null: not made yet
};

} // namespace stasis
