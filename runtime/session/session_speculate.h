// Speculative decoding of one generation: the target computes a drawn token and what a drafter
// proposes behind it in one pass, then draws at each position as always; proposals that were not
// drawn leave no trace. See session_speculate.cpp.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/session/session.h"

namespace stasis {

class Speculation {
  public:
    // What it drafts is counted in `result`.
    Speculation(Session &session, Drafting &drafting, const Watch &watch, GenerateResult &result);
    ~Speculation() { drop(); }
    Speculation(const Speculation &) = delete;
    Speculation &operator=(const Speculation &) = delete;

    // As Session::decode_with. `most`: tokens that may come, this one included.
    uint32_t decode(uint64_t most, size_t likely_count, LogProbabilities &likely);

  private:
    std::span<const float> next_row();
    void propose(uint32_t next, uint64_t most);
    bool try_pass();
    template <typename Work> void with_room(const Work &work);
    void plain_pass();
    void drop() noexcept;

    Session &session_;
    Drafting &drafting_;
    const Watch &watch_;
    GenerateResult &result_;
    WorkspaceLease work_;
    bool drafts_ = true;     // no drafter has failed
    size_t taken_ = 0;       // rows of the pass that are in the timeline
    bool projected_ = false; // the pass's logits are computed
};

} // namespace stasis
