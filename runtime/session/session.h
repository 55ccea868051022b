// A session: a timeline over a model, with the settings that draw its next tokens, a drafter and a
// trace. Every function is all or nothing: if it throws Error, the session is unchanged. One caller
// at a time; the ABI keeps the flag that checks this. Knows neither files nor the ABI.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/state/state.h"
#include "runtime/session/constrained.h"
#include "runtime/session/draft.h"
#include "runtime/session/generation.h"
#include "runtime/session/model.h"
#include "runtime/session/settings.h"
#include "runtime/text/chat.h"
#include "runtime/timeline/append.h"

namespace stasis {

struct SessionInfo : TimelineInfo {
    uint64_t pending_bytes; // a system text that is not in the log before the first user's turn
};

// What a session is to append, with what its settings then are.
struct Prompt {
    std::vector<TokenEntry> entries;
    std::string pending_system; // of the settings, once the entries are in the log
};

// What a log lacks of a conversation's rendering.
struct ChatTokens {
    uint64_t position;            // of the log, up to which it spells the same as the rendering
    std::vector<uint32_t> tokens; // of the rendering, from there on
};

class Session {
  public:
    // Throws as Timeline's constructor.
    Session(std::shared_ptr<Model> model, const TimelineOptions &options);
    // The timeline must be over `model`.
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
    Digest digest() { return timeline_.digest(model_->identity_of(timeline_.long_rope).model); }

    void append(std::span<const uint32_t> tokens, const AppendOptions &options);
    void append_message(std::string_view role, std::string_view text, bool reply,
                        const AppendOptions &options);
    // Returns what append_message appends, and what append does. Throw what they throw for it.
    Prompt message_prompt(std::string_view role, std::string_view text, bool reply,
                          const Watch &watch) const;
    Prompt token_prompt(std::span<const uint32_t> tokens) const;
    ChatTokens chat_tokens(const ChatInput &input, bool reply, const Watch &watch) const;
    // Returns what append_chat appends. Sets and throws as it does.
    std::vector<TokenEntry> chat_entries(const ChatInput &input, bool reply, uint64_t &position,
                                         const Watch &watch) const;
    // Appends what the log lacks of a conversation's rendering by the model's own template. Sets
    // `position`, also before it throws Error(conflict): the log differs from there on.
    void append_chat(const ChatInput &input, bool reply, uint64_t &position,
                     const AppendOptions &options);
    // Reads what follows the last generation prompt; see parse_reply. `complete`: it will not go
    // on, even if no end token has come. Throws Error(not_found) without a prompt.
    jinja::Value reply_message(const jinja::Value &tools, bool complete) const;
    // Adds the log entries of tokens that the caller gives. Throws Error(invalid_argument). Strong
    // guarantee.
    void add_entries(std::span<const uint32_t> tokens, std::vector<TokenEntry> &entries) const;

    // Returns the logits of the next token, [vocabulary], cached until the session changes. Throws
    // Error(not_found) before the first position, as do top, sample and decode. After a rewind the
    // last token is computed again first. Throws Error(diverged) if the first logits of a loaded
    // session differ from the saved ones.
    const std::vector<float> &logits(const Watch &watch = {}) { return timeline_.logits(watch); }
    std::vector<std::pair<uint32_t, float>> top(size_t n); // token, log-probability
    std::vector<double> score(std::span<const uint32_t> tokens, const AppendOptions &options);

    // Sets how later tokens are drawn, but not which are allowed.
    void set_sampling(const Sampling &sampling);
    // Sets the constraint on what is drawn; kind 0: none. Throws as Constraints::compile.
    void set_constraint(const Constraint &constraint, const Watch &watch);
    // Sets the tokens that the next draw may give (encode_tokens); none: all. Throws
    // Error(invalid_argument).
    void set_allowed(Shared<std::string> tokens);
    // Returns the tokens that may be drawn next; null: all. Throws Error(no_token) if none may,
    // and as ConstrainedText::mask_at and Constraints::compile.
    std::shared_ptr<const constraint::Mask> mask(const Watch &watch);
    // Returns the constraint's text at the present position, for which `mask` was asked last; none
    // without a constraint.
    std::optional<DraftedText> drafted_text() const;
    // Compiles the constraint of a session that was loaded. Throws Error(corrupt) if that is none,
    // or if the log does not follow it, Error(cancelled).
    void check_constraint(const Watch &watch);
    // A token was drawn and is in the log: what was allowed for it alone is no more.
    void drew() noexcept { settings_.sampling.v3.allowed = {}; }
    uint32_t sample();
    uint32_t decode();
    // Calls back with every event of a Generation, see tell_all (generate.h).
    void generate(const GenerateOptions &options, GenerateResult &result);
    // Returns the drafting state for a generation, created if needed; null: nothing drafts. Counts
    // a failure to create it.
    Drafting *begin_drafting(GenerateResult &result);
    // Returns the entry of the next token drawn. Throws Error(full).
    TokenEntry drawn_entry(uint32_t token);

    // Sets the drafter of later generations; empty: none. Throws Error(model_mismatch),
    // Error(invalid_argument). A fork creates a drafter of its own from the same options.
    void set_draft(const std::optional<DraftOptions> &options);
    // Sets a drafter of the caller's own. A fork creates one from the options instead.
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
    void append_entries(std::span<const TokenEntry> entries, const AppendOptions &options);
    ConstrainedText text_of(const Constraint &constraint, const Watch &watch) const;
    bool reply_open() const;
    uint8_t next_turn(bool sampled) const;
    ChatPosition chat_position() const;
    const ChatTemplate &own_chat() const;
    struct RenderedChat;
    RenderedChat render_chat(const ChatInput &input, bool reply, const Watch &watch) const;

    std::shared_ptr<Model> model_; // outlives the timeline
    Timeline timeline_;
    Settings settings_;
    std::optional<ConstrainedText> text_; // of the constraint in force; empty: not compiled yet
    std::optional<DraftOptions> draft_;
    std::unique_ptr<Drafting> drafting_; // null: not created yet
};

} // namespace stasis
