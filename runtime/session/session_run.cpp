// Runs of tokens; see session_run.h. What fails in a run is done again without one, and then
// succeeds or fails as plain decoding does.
#include "runtime/session/session_run.h"

#include <algorithm>

#include "runtime/compute/device/weights.h"
#include "runtime/session/model.h"

namespace stasis {

bool TokenRun::possible(const Session &session, const GenerateOptions &options) {
    return session.model_->device != nullptr && options.log_probabilities == 0 &&
           drawn_on_device(session.sampling_) &&
           !session.tracks_attention(); // rows that are not kept would be in the sums
}

TokenRun::TokenRun(Session &session) : session_(session), work_(*session.model_) {}

// The run's last draw, if the run ended there, else one on the host.
uint32_t TokenRun::first_token() {
    if (taken_ > 0 && taken_ == rows_.size() && rows_.size() <= run_.tokens.size()) {
        return run_.tokens[taken_ - 1];
    }
    return session_.draw(*work_);
}

// Computes rows behind the first; false: it could not, and only that one is left.
bool TokenRun::try_run(uint64_t most) {
    const uint64_t room = session_.capacity_ - session_.log_.size();
    length_ = std::min(2 * length_, kRunMost);
    const auto count = static_cast<size_t>(std::min({uint64_t{length_}, most, room}));
    run_.tokens.clear();
    run_.failures.clear();
    if (count < 2) {
        return false;
    }
    rows_.resize(count);
    try {
        const Model &model = *session_.model_; // once for all lengths
        work_->fit(model.config, model.weights.groups, kRunMost);
        session_.compute_ahead(rows_, *work_, &run_);
    } catch (...) {
        run_.tokens.clear();
        run_.failures.clear();
        return false;
    }
    for (size_t i = 0; i < count; ++i) {
        if (run_.failures[i] != UINT32_MAX) { // what is not finite is met again, and told then
            rows_.resize(i);
            break;
        }
        if (i + 1 < count) {
            rows_[i + 1].token = run_.tokens[i];
        }
    }
    if (rows_.empty()) {
        forget();
    }
    return !rows_.empty();
}

uint32_t TokenRun::decode(uint64_t most) {
    if (taken_ == rows_.size()) {
        const TokenEntry entry = session_.drawn_entry(first_token());
        if (taken_ < run_.failures.size()) {
            forget();
        }
        taken_ = 0;
        rows_.assign(1, entry);
        if (!try_run(most)) {
            rows_.assign(1, entry);
            session_.compute_ahead(rows_, *work_, nullptr);
        }
    }
    const uint32_t token = rows_[taken_].token;
    const TokenEntry entry = session_.drawn_entry(token);
    session_.take_row(entry, work_->hidden + taken_ * session_.model_->config.hidden);
    ++taken_;
    return token;
}

// Rows that are not in the timeline: their slots are zero again, their pages go back.
void TokenRun::forget() noexcept {
    session_.roll_back(session_.log_.size());
    session_.account();
    session_.tell_pages(PageOrigin::before); // fewer than were told of, so nothing can fail
    run_.tokens.clear();
    run_.failures.clear();
}

void TokenRun::drop() noexcept {
    if (taken_ < std::max(rows_.size(), run_.failures.size())) {
        forget();
    }
}

} // namespace stasis
