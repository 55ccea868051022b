// Constraints where tokens are drawn (CONSTRAINTS.md, "Drawing"): what a model keeps to compile
// them, and how far the text of a log has come. The log alone says where a text begins, so that a
// rewind, a fork, a file and a verification find the same masks. Knows no sessions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "format/state/state.h"
#include "format/state/watch.h"
#include "runtime/constraint/matcher.h"
#include "runtime/text/tokenizer.h"

namespace stasis {

// A constraint over a model's vocabulary. What walks along it finds is shared.
struct CompiledConstraint {
    Shared<Constraint> text;
    constraint::Matcher start;
    std::vector<uint32_t> end_tokens;

    bool ends(uint32_t token) const {
        return std::find(end_tokens.begin(), end_tokens.end(), token) != end_tokens.end();
    }
};

// The constraints of a model's sessions: equal ones are compiled once as long as one of them is
// held. Thread-safe.
class Constraints {
  public:
    // Throws Error: invalid_argument and unsupported as compile_constraint, unsupported without a
    // tokenizer, cancelled. `end_tokens` and `vocabulary` are the model's, the same at every call.
    std::shared_ptr<const CompiledConstraint> compile(const Constraint &given,
                                                      const Tokenizer *tokenizer,
                                                      const std::vector<uint32_t> &end_tokens,
                                                      uint32_t vocabulary, const Watch &watch);

  private:
    std::shared_ptr<const CompiledConstraint> find(const Constraint &given);

    std::mutex mutex_;
    std::shared_ptr<const constraint::Vocabulary> vocabulary_;      // null: not made yet
    std::vector<std::weak_ptr<const CompiledConstraint>> compiled_; // held by sessions
};

// The text of a constraint along tokens that are drafted after a log. A value, as a Matcher is.
class DraftedText {
  public:
    DraftedText(std::shared_ptr<const CompiledConstraint> constraint, constraint::Matcher at)
        : constraint_(std::move(constraint)), at_(std::move(at)) {}

    // Goes on by a token; after an end token another text begins. Returns false, and stays where it
    // was, if the constraint does not allow it here. Throws Error(unsupported) as Matcher.
    bool take(uint32_t token);
    // Returns the tokens that may come next; null: none. Throws as Matcher::mask.
    std::shared_ptr<const constraint::Mask> mask(const Watch &watch);

  private:
    std::shared_ptr<const CompiledConstraint> constraint_;
    constraint::Matcher at_;
};

// Follows the text of a constraint along a log. A value, as a Matcher is.
class ConstrainedText {
  public:
    explicit ConstrainedText(std::shared_ptr<const CompiledConstraint> constraint)
        : constraint_(std::move(constraint)), matcher_(constraint_->start) {}

    const Shared<Constraint> &constraint() const { return constraint_->text; }
    // Returns the tokens that may be drawn after the first `end` entries of a log. A call that
    // follows another needs only what the log has more. Throws Error(unsupported) as Matcher,
    // Error(cancelled), and Error(corrupt) if an entry is one that the constraint does not allow.
    template <class Log>
    std::shared_ptr<const constraint::Mask> mask_at(const Log &log, uint64_t end,
                                                    const std::vector<Sampling> &samplings,
                                                    const Watch &watch) {
        uint64_t begin = end;
        const uint64_t least = end < followed_ ? 0 : followed_;
        while (begin > least && governs(log[begin - 1], samplings)) {
            --begin;
        }
        constraint::Matcher next =
            begin == followed_ && end >= followed_ ? matcher_ : constraint_->start;
        for (uint64_t i = begin; i < end; ++i) {
            watch.look(i, end);
            const uint32_t token = log[i].token;
            if (!next.take_token(token)) {
                fail(Status::corrupt,
                     "token %u at position %llu was drawn under a constraint that does not allow "
                     "it there",
                     token, static_cast<Number>(i));
            }
        }
        std::shared_ptr<const constraint::Mask> mask = next.mask(watch);
        matcher_ = std::move(next);
        followed_ = end;
        return mask;
    }
    // Returns the text from where mask_at was last asked for.
    DraftedText drafted() const { return {constraint_, matcher_}; }
    // What lies behind a position may be other tokens from now on.
    void rewound(uint64_t position) noexcept {
        followed_ = position < followed_ ? UINT64_MAX : followed_;
    }

  private:
    // Reports whether an entry is a part of the constraint's text.
    bool governs(const TokenEntry &entry, const std::vector<Sampling> &samplings) const;

    std::shared_ptr<const CompiledConstraint> constraint_;
    constraint::Matcher matcher_;
    uint64_t followed_ = 0; // entries of the log; UINT64_MAX: it is followed anew
};

// Returns the mask of `mask`, which may be null, and of the tokens that a host allows; null: all
// may be drawn. Throws Error(no_token) if none may.
std::shared_ptr<const constraint::Mask> allowed_tokens(std::shared_ptr<const constraint::Mask> mask,
                                                       const SamplingV3 &v3, uint32_t vocabulary);

inline std::span<const uint64_t> bits_of(const std::shared_ptr<const constraint::Mask> &mask) {
    return mask == nullptr ? std::span<const uint64_t>() : std::span(*mask);
}

} // namespace stasis
