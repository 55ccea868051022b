// Drafters: they propose tokens that may follow a log, so that a session can check many in one pass
// (lookahead.h). Proposals affect only speed, so a drafter may be wrong, and may fail. Knows
// neither the passes nor generation.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/session/constrained.h"
#include "runtime/session/model.h"
#include "runtime/timeline/timeline.h"

namespace stasis {

struct DraftOptions {
    std::shared_ptr<Model> model; // null: LookupDrafter
    // Tokens proposed for a pass. If equal, this many are proposed regardless of earlier results.
    uint32_t tokens_min = 2, tokens_max = 8;

    static constexpr uint32_t kTokensMost = 32;
};

// The log and the settings for which tokens are proposed.
struct DraftPlace {
    const TokenLog &log;
    uint32_t next;                         // drawn for the position after the log
    const Sampling &sampling;              // the settings that will draw
    Watch watch = {};                      // ends it, without a report of progress
    std::span<const uint16_t> hidden = {}; // [hidden] final hidden state of the log's last position
    const DraftedText *text = nullptr; // that tokens after `next` go on with; null: any may follow
};

// What a drafter that draws may draw next, token by token from a place on.
class DraftMask {
  public:
    explicit DraftMask(const DraftPlace &place);

    bool any() const { return !text_ || mask_ != nullptr; }
    std::span<const uint64_t> allowed() const { return bits_of(mask_); } // empty: all
    void take(uint32_t token);

  private:
    std::optional<DraftedText> text_;
    std::shared_ptr<const constraint::Mask> mask_;
    Watch watch_;
};

class Drafter {
  public:
    virtual ~Drafter() = default;
    // Adds up to `most` tokens that may follow `next`. Those that the place's text does not allow
    // are no use, and need not be proposed. An exception ends drafting, not the generation.
    virtual void propose(const DraftPlace &place, size_t most, std::vector<uint32_t> &tokens) = 0;
    // Shows the final hidden states [rows][hidden] of the log's positions from `begin` on.
    // Positions may be left out.
    virtual void computed(const TokenLog &, uint64_t, std::span<const uint16_t>) noexcept {}
    // Reports that the log was cut to `position`; tokens after it may differ from then on.
    virtual void rewound(uint64_t position) noexcept = 0;
    // Returns the cost of a proposed token, in passes of the target.
    virtual double cost() const = 0;
    // Gives back pages of the session's own model, which are computed again when needed. Returns
    // false if there are none.
    virtual bool release() noexcept = 0;
};

// Proposes the tokens that followed the longest suffix of the log that occurred before. It compares
// the kCandidates latest places whose last kShortest tokens equal the log's, and takes the one with
// most tokens in common, counted up to kLongest. Places are found by a hash of kShortest tokens and
// chained backwards as in RFC 1951 (Deutsch, "DEFLATE", 1996, section 4), so the cost of a token
// does not grow with the log. Holds 12 to 24 bytes for each token of the log; allocates when their
// number reaches a power of two.
class LookupDrafter final : public Drafter {
  public:
    static constexpr size_t kShortest = 3, kLongest = 32, kCandidates = 16;

    void propose(const DraftPlace &place, size_t most, std::vector<uint32_t> &tokens) override;
    void rewound(uint64_t position) noexcept override;
    double cost() const override { return 0; }
    bool release() noexcept override { return false; }

  private:
    size_t slot(size_t end) const;
    void link(size_t end);
    void push(uint32_t token);
    void pop();
    size_t common(size_t a, size_t b) const;
    size_t find() const;

    // A place is the number of tokens up to and with a token: 1 .. tokens_.size(); 0: none.
    std::vector<uint32_t> tokens_;
    std::vector<uint32_t> previous_; // [place - 1] the place before it in its chain
    std::vector<uint32_t> latest_;   // [slot] the last place of its chain
    uint64_t known_ = 0;             // tokens that equal the log's
};

// Proposes the tokens that a smaller model draws with the same settings, seed and positions, under
// the same constraint. The same random numbers make it agree more often than numbers of its own.
// Its timeline follows the log.
class ModelDrafter final : public Drafter {
  public:
    ModelDrafter(std::shared_ptr<Model> model, const Model &target, uint64_t capacity);
    ~ModelDrafter() override;

    void propose(const DraftPlace &place, size_t most, std::vector<uint32_t> &tokens) override;
    void rewound(uint64_t position) noexcept override;
    double cost() const override { return cost_; }
    bool release() noexcept override;

  private:
    void catch_up(const DraftPlace &place);

    std::shared_ptr<Model> model_;
    double cost_;
    uint64_t capacity_;
    std::optional<Timeline> timeline_; // empty: must be computed again
    uint64_t common_ = 0;              // its first tokens that equal the log's
    std::vector<TokenEntry> entries_;
};

// Chooses how many tokens to propose, from the results of the latest proposals. With a share a of
// them right, each costing c passes of its own and v of the target's, k proposals make generation
// (1 - a^(k+1)) / ((1 - a) (1 + k (c + v)))
// times as fast (Leviathan, Kalman, Matias, "Fast Inference from Transformers via Speculative
// Decoding", ICML 2023, theorem 3.8, with v = 0). The k with the largest gain is used. If none
// promises a gain, a few tokens are proposed now and then, unless they could not pay even if all
// were right.
class DraftLength {
  public:
    DraftLength(const DraftOptions &options, double cost);

    size_t wanted() const; // for the next pass; 0: not now
    void began(size_t proposed);
    void note(bool right); // for each proposal that was compared with the token drawn

  private:
    double gain(size_t tokens, double right) const;
    size_t best() const;

    size_t least_, most_;
    double cost_;
    double right_ = 0.6;
    bool never_; // no gain even if all were right
    uint32_t rest_ = 0, rest_next_, rest_max_;
};

// A session's drafting state between generations.
struct Drafting {
    std::unique_ptr<Drafter> drafter;
    DraftLength length;
    std::vector<uint32_t> proposals;

    Drafting(std::unique_ptr<Drafter> given, const DraftOptions &options)
        : drafter(std::move(given)), length(options, drafter->cost()) {}
};

} // namespace stasis
