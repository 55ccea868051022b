// The steps that verification (verify.cpp) and audits (verify_audit.cpp) are made of: drawing
// tokens again, comparing a page, comparing what follows from the last position.
// Knows no order of things: which positions are computed, and from what, is the callers' choice.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "format/state/elements.h"
#include "runtime/sampling/sampling.h"
#include "runtime/snapshot/verify.h"
#include "runtime/timeline/append.h"

namespace stasis {

Divergence diverged(Element element, uint64_t position, const std::string &message);

// Draws again what the log says was drawn, from the logits of every position before a drawn token.
class Redraw {
  public:
    explicit Redraw(const State &stored);

    // The token that follows a position was drawn.
    bool wants_logits(uint64_t position) const;
    std::span<const uint32_t> tokens() const { return tokens_; }     // of the whole log
    std::span<const TokenEntry> entries() const { return entries_; } // the same, none as drawn
    const State &stored() const { return stored_; }
    // The first token that is not what its settings draw.
    std::optional<Divergence> first() const;
    uint64_t drawn() const { return drawn_; }
    uint64_t drawn_otherwise() const { return otherwise_; }

    static bool on_wanted(void *user, uint64_t position);
    static bool on_logits(void *user, uint64_t position, const float *logits, size_t count);

  private:
    void compare(uint64_t position, std::span<const float> logits);

    const State &stored_;
    std::vector<uint32_t> tokens_;
    std::vector<TokenEntry> entries_;
    uint64_t drawn_ = 0, otherwise_ = 0, first_ = UINT64_MAX;
    uint32_t first_token_ = 0; // that is drawn at position first_
    SamplingScratch scratch_;
};

// Throws unless recomputing under this model can be expected to give the stored bits.
void check_comparable(const State &stored, const Model &model);

// Evicts what the log says was evicted at the timeline's position.
void evict_due(Timeline &timeline, const State &stored);

// Appends the positions of the log from the timeline's own up to `end`, with logits where a drawn
// token follows, and what was evicted before `end` at its place. `done` of `total` positions were
// computed before.
void recompute(Timeline &timeline, Redraw &redraw, uint64_t end, const VerifyOptions &options,
               uint64_t done, uint64_t total);

// Compares page `index` of all groups, as the timeline has computed and still holds it.
std::optional<Divergence> compare_page(const Timeline &timeline, const State &stored,
                                       const StoredPages &pages, uint64_t index);

// Compares what follows from the last position and from the tokens as a whole.
std::optional<Divergence> compare_rest(const State &stored, const State &computed);

// Which of two comes first; at the same position a token comes before its keys and values.
std::optional<Divergence> earlier(const std::optional<Divergence> &token,
                                  const std::optional<Divergence> &other);

} // namespace stasis
