// Draws the tokens of a generation one at a time, from rows that may be computed ahead. Knows
// neither text nor stop strings.
//
// A pass computes rows for a token that was drawn and for tokens proposed after it. A drafter
// proposes them, or the device draws them itself; without either, each token is appended alone.
// Rows enter the timeline one at a time, and only after the token of that position was drawn from
// the logits of the row before, with the sampler and the history that it has at that position. So
// between two tokens the session equals one that appended its tokens one at a time. The exceptions
// are keys, values and pages after its position; they are zeroed and released as soon as a draw
// differs or the generation ends.
//
// Work that fails because of a proposal (memory, pages, numbers that are not finite) is repeated
// without proposals, and then succeeds or fails as it would have without them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/compute/backend.h"
#include "runtime/session/session.h"
#include "runtime/timeline/ahead.h"

namespace stasis {

class Lookahead {
  public:
    // `drafting` null: no drafter. Draws with so many log-probabilities. Counts passes and
    // proposals in `result`.
    Lookahead(Session &session, Drafting *drafting, size_t log_probabilities,
              GenerateResult &result);
    ~Lookahead() { drop(); }
    Lookahead(const Lookahead &) = delete;
    Lookahead &operator=(const Lookahead &) = delete;

    // Draws the next token: the same at every call until it is appended. Fills `likely` if
    // log-probabilities are requested. Throws Error(cancelled) while the state that a rewind cut
    // off is computed again.
    uint32_t draw(const Watch &watch, LogProbabilities &likely);
    // Appends the token that was drawn. `most` is how many tokens may follow, this one included.
    // Strong guarantee.
    void append(uint32_t token, uint64_t most, const Watch &watch);
    // Drops what is computed ahead, and the memory for it.
    void settle() noexcept;
    // Does so unless the state at the session's position can be read beside it.
    void show_state() noexcept;

  private:
    std::span<const float> next_row(const Watch &watch);
    void append_drawn(const TokenEntry &entry, uint64_t most, const Watch &watch);
    bool compute_rows(const TokenEntry &entry, uint64_t most, const Watch &watch);
    bool compute_drafted(uint64_t most, const Watch &watch);
    bool compute_drawn(uint64_t most);
    void propose(uint32_t drawn, uint64_t most, const Watch &watch);
    void append_alone(const TokenEntry &entry);
    void show_hidden();
    template <typename Work> void with_pages(const Work &work);
    void drop() noexcept;

    Session &session_;
    Timeline &timeline_;
    Drafting *const drafting_;
    const size_t log_probabilities_;
    GenerateResult &result_;
    const bool device_draws_;
    bool drafts_ = true; // no drafter has failed
    size_t device_length_ =
        1; // of the latest rows that the device drew: the next are twice as many

    std::optional<PassLease> pass_; // held while rows may be pending
    RowsAhead ahead_;
    std::vector<TokenEntry> rows_; // computed: the first drawn, the others proposed
    size_t computed_ = 0;          // rows in pages, failed ones included
    size_t taken_ = 0;             // rows in the timeline
    bool projected_ = false;       // the rows' logits are computed
    DrawnRows run_;
    std::vector<uint32_t> drawn_; // [row] the token after it, if the device drew it
};

} // namespace stasis
