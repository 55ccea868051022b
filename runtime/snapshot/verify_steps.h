// The steps of verification (verify.cpp) and audits (verify_audit.cpp): drawing tokens again,
// comparing a page, comparing the values that follow from the last position. The callers choose
// which positions are computed, and from which state.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "format/state/elements.h"
#include "runtime/sampling/sampling.h"
#include "runtime/session/constrained.h"
#include "runtime/snapshot/verify.h"
#include "runtime/timeline/append.h"

namespace stasis {

// Returns a divergence without a layer.
Divergence diverged(Element element, uint64_t position, const std::string &message);

// Draws again the tokens that the log records as drawn, from the logits of the position before
// each.
class Redraw {
  public:
    Redraw(const State &stored, Model &model, const Watch &watch);

    // Reports whether the token after a position was drawn.
    bool wants_logits(uint64_t position) const;
    std::span<const uint32_t> tokens() const { return tokens_; }     // of the whole log
    std::span<const TokenEntry> entries() const { return entries_; } // the same, none as drawn
    const State &stored() const { return stored_; }
    // Returns the first token that differs from the one its settings draw, or the first recurrent
    // state that differs, if that is earlier.
    std::optional<Divergence> first() const;
    uint64_t drawn() const { return drawn_; }
    uint64_t drawn_otherwise() const { return otherwise_; }

    // Compares the recurrent state at the timeline's position, if the file has one there, and reads
    // it, which checks its bytes.
    void compare_state(const Timeline &timeline, const StoredPages &pages);

    static bool on_wanted(void *user, uint64_t position);
    static bool on_logits(void *user, uint64_t position, const float *logits, size_t count);

  private:
    void compare(uint64_t position, std::span<const float> logits);
    std::shared_ptr<const constraint::Mask> mask_of(const Sampling &sampling, uint64_t position);
    void note(uint64_t position, std::string instead);
    std::optional<Divergence> first_token() const;

    const State &stored_;
    Model &model_;
    const Watch watch_;
    std::vector<ConstrainedText> texts_; // of constraints of the log, the latest last
    std::vector<uint32_t> tokens_;
    std::vector<TokenEntry> entries_;
    uint64_t drawn_ = 0, otherwise_ = 0, first_ = UINT64_MAX;
    std::string first_instead_;       // what its settings say at position first_
    std::optional<Divergence> state_; // the first that differs
    SamplingScratch scratch_;
};

// Throws unless computing under this model can give the stored bits.
void check_comparable(const State &stored, const Model &model);

// Repeats the evictions that the log records at the timeline's position.
void evict_due(Timeline &timeline, const State &stored);

// Appends the positions of the log from the timeline's own up to `end`, and repeats the evictions
// before `end` at their positions. Compares each drawn token with the logits before it, and the
// recurrent states that the file has. `done` of `total` positions were computed before.
void recompute(Timeline &timeline, Redraw &redraw, const StoredPages &pages, uint64_t end,
               const VerifyOptions &options, uint64_t done, uint64_t total);

// Compares page `index` of all groups with the timeline, which still holds it.
std::optional<Divergence> compare_page(const Timeline &timeline, const State &stored,
                                       const StoredPages &pages, uint64_t index);

// Compares the values that follow from the last position and from the tokens as a whole.
std::optional<Divergence> compare_rest(const State &stored, const State &computed);

// Returns the earlier of two divergences; at the same position a token comes before its keys and
// values.
std::optional<Divergence> earlier(const std::optional<Divergence> &token,
                                  const std::optional<Divergence> &other);

} // namespace stasis
