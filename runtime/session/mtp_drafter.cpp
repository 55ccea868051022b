// Runs the MTP head beside a session's log; see mtp_drafter.h.
#include "runtime/session/mtp_drafter.h"

#include <algorithm>
#include <cassert>

#include "runtime/compute/forward.h"
#include "runtime/compute/profile.h"
#include "runtime/timeline/append.h"

namespace stasis {

namespace {

constexpr size_t kRows = 256; // of a pass of the head, at most; as many that wait are run

} // namespace

MtpDrafter::MtpDrafter(std::shared_ptr<Model> model)
    : model_(std::move(model)), cost_(static_cast<double>(model_->mtp->weights.stored_bytes) /
                                      static_cast<double>(model_->weights.stored_bytes)) {}

MtpDrafter::~MtpDrafter() = default;

// Cuts the timeline to its first rows.
void MtpDrafter::shorten(uint64_t rows) noexcept {
    if (rows == 0) {
        timeline_.reset();
    } else if (rows < this->rows()) {
        timeline_->shorten(rows);
    }
}

// A row depends on the token after its position.
void MtpDrafter::rewound(uint64_t position) noexcept {
    const uint64_t left = position > first_ ? position - first_ : 0; // hidden states still right
    const uint64_t rows_left = std::min(rows(), left == 0 ? 0 : left - 1);
    const bool kept = rows_left == rows(); // else the next hidden state is not held
    waiting_.resize(kept ? std::min(waiting(), left - rows_left) * width() : 0);
    shorten(rows_left);
}

// After a rewind one hidden state may be missing: the rows before it move on by one position, which
// changes little for what the head predicts. After a wider gap they go.
void MtpDrafter::add(uint64_t begin, std::span<const uint16_t> hidden) {
    if (begin == end() + 1 && rows() != 0 && waiting() == 0) {
        ++first_;
    } else if (begin != end()) {
        shorten(0);
        waiting_.clear();
        first_ = begin;
    }
    waiting_.insert(waiting_.end(), hidden.begin(), hidden.end());
}

void MtpDrafter::computed(const TokenLog &log, uint64_t begin,
                          std::span<const uint16_t> hidden) noexcept {
    assert(hidden.size() % width() == 0);
    try {
        const size_t slice = kRows * width();
        for (size_t at = 0; at < hidden.size(); at += slice) {
            add(begin + at / width(), hidden.subspan(at, std::min(slice, hidden.size() - at)));
            if (waiting() >= kRows) {
                catch_up(log, {});
            }
        }
    } catch (...) { // proposals begin anew
        shorten(0);
        waiting_.clear();
    }
}

// Appends rows to the timeline: tokens, and the hidden states before them [tokens][hidden].
void MtpDrafter::run(std::span<const uint32_t> tokens, const uint16_t *hidden, const Watch &watch) {
    std::vector<TokenEntry> entries;
    for (const uint32_t token : tokens) {
        entries.push_back({token});
    }
    PassLease pass(*model_->mtp);
    Append append{&*timeline_, entries};
    uint64_t promised = 0;
    append.reserve(false, promised);
    try {
        pass->fit(tokens.size());
        pass->clear();
        append.stage({tokens.size(), 0}, *pass);
        pass->previous = hidden;
        forward(*pass, watch, 0, tokens.size());
        append.accept(*pass, {});
        append.commit(pass->hidden + (tokens.size() - 1) * width());
    } catch (...) {
        append.abort();
        throw;
    }
}

// Runs the rows whose tokens are in the log.
void MtpDrafter::catch_up(const TokenLog &log, const Watch &watch) {
    if (!timeline_) {
        timeline_.emplace(*model_->mtp, TimelineOptions());
    }
    std::vector<uint32_t> tokens;
    for (uint64_t next = first_ + rows() + 1; next < log.size() && waiting() > 0;) {
        const uint64_t count = std::min({uint64_t{kRows}, log.size() - next, waiting()});
        tokens.clear();
        for (uint64_t i = 0; i < count; ++i) {
            tokens.push_back(log[next + i].token);
        }
        run(tokens, waiting_.data(), watch);
        waiting_.erase(waiting_.begin(),
                       waiting_.begin() + static_cast<ptrdiff_t>(count * width()));
        next += count;
    }
}

uint32_t MtpDrafter::draw(const Sampling &sampling, uint64_t position, const DraftMask &mask) {
    PassLease pass(*model_->mtp);
    return sample(timeline_->compute_logits(*pass), sampling, position, history_, pass->sampling,
                  mask.allowed());
}

void MtpDrafter::propose(const DraftPlace &place, size_t most, std::vector<uint32_t> &tokens) {
    const uint64_t position = place.log.size();
    if (end() != position || waiting() == 0) {
        add(position - 1, place.hidden);
    }
    if (most == 0 || position + most > model_->config.context) {
        return; // the head's context ends where the model's does
    }
    catch_up(place.log, place.watch);
    assert(waiting() == 1);

    const uint64_t length = history_length(place.sampling, position);
    history_.clear();
    for (uint64_t i = position - length; i < position; ++i) {
        history_.push_back(place.log[i].token);
    }

    // Rows of tokens that may not enter the log: they are cut off again.
    const uint64_t certain = rows();
    try {
        uint32_t token = place.next;
        run({&token, 1}, waiting_.data(), place.watch);
        size_t count = 1;
        for (DraftMask mask(place); mask.any(); mask.take(token)) {
            history_.push_back(token);
            token = draw(place.sampling, position + count, mask);
            tokens.push_back(token);
            if (count++ == most) {
                break;
            }
            run({&token, 1}, timeline_->hidden.numbers.data(), place.watch);
        }
    } catch (...) {
        shorten(certain);
        throw;
    }
    shorten(certain);
}

} // namespace stasis
