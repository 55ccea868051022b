// Lookup and model drafters, and the number of tokens to propose; see draft.h.
#include "runtime/session/draft.h"

#include <algorithm>

#include "runtime/session/draw.h"
#include "runtime/timeline/append.h"

namespace stasis {

DraftMask::DraftMask(const DraftPlace &place) : watch_(place.watch) {
    if (place.text != nullptr) {
        text_ = *place.text;
        mask_ = text_->mask(watch_);
    }
}

void DraftMask::take(uint32_t token) {
    if (text_) {
        mask_ = text_->take(token) ? text_->mask(watch_) : nullptr;
    }
}

// Returns the slot of the chain of the kShortest tokens that end at place `end`.
size_t LookupDrafter::slot(size_t end) const {
    uint64_t hash = 0;
    for (size_t i = end - kShortest; i < end; ++i) {
        hash = (hash + tokens_[i]) * 0x9E3779B97F4A7C15U; // the golden ratio's fraction, 64 bits
    }
    return (hash >> 32) & (latest_.size() - 1);
}

// Makes place `end` the latest of its chain.
void LookupDrafter::link(size_t end) {
    uint32_t &latest = latest_[slot(end)];
    previous_[end - 1] = latest;
    latest = static_cast<uint32_t>(end);
}

void LookupDrafter::push(uint32_t token) {
    if (tokens_.size() == latest_.size()) { // a power of two
        const size_t room = std::max<size_t>(1024, 2 * latest_.size());
        tokens_.reserve(room);
        previous_.reserve(room);
        latest_ = std::vector<uint32_t>(room);
        for (size_t end = kShortest; end <= tokens_.size(); ++end) {
            link(end);
        }
    }
    tokens_.push_back(token);
    previous_.push_back(0);
    if (tokens_.size() >= kShortest) {
        link(tokens_.size());
    }
}

void LookupDrafter::pop() {
    if (tokens_.size() >= kShortest) { // the place is the latest of its chain
        latest_[slot(tokens_.size())] = previous_.back();
    }
    tokens_.pop_back();
    previous_.pop_back();
}

// Returns how many tokens before both places are equal, up to kLongest.
size_t LookupDrafter::common(size_t a, size_t b) const {
    const size_t most = std::min({a, b, kLongest});
    size_t count = 0;
    while (count < most && tokens_[a - 1 - count] == tokens_[b - 1 - count]) {
        ++count;
    }
    return count;
}

// Returns the place where the longest suffix of the log ended before; 0: none.
size_t LookupDrafter::find() const {
    size_t found = 0, longest = kShortest - 1;
    if (tokens_.size() < kShortest) {
        return 0;
    }
    size_t place = previous_.back();
    for (size_t i = 0; i < kCandidates && place != 0 && longest < kLongest; ++i) {
        const size_t length = common(place, tokens_.size());
        if (length > longest) {
            longest = length;
            found = place;
        }
        place = previous_[place - 1];
    }
    return found;
}

void LookupDrafter::propose(const DraftPlace &place, size_t most, std::vector<uint32_t> &tokens) {
    while (tokens_.size() > known_) {
        pop();
    }
    while (tokens_.size() < place.log.size()) {
        push(place.log[tokens_.size()].token);
        known_ = tokens_.size();
    }
    push(place.next);
    const size_t found = find(), end = tokens_.size(), first = tokens.size();
    // The tokens after the place found may reach the proposals themselves, which then repeat.
    for (size_t i = 0; found != 0 && i < most; ++i) {
        tokens.push_back(found + i < end ? tokens_[found + i] : tokens[first + found + i - end]);
    }
    pop(); // `next` is not in the log yet
}

void LookupDrafter::rewound(uint64_t position) noexcept {
    known_ = std::min(known_, position);
}

// The cost is estimated by the bytes of weights that a pass of each model reads.
ModelDrafter::ModelDrafter(std::shared_ptr<Model> model, const Model &target, uint64_t capacity)
    : model_(std::move(model)), cost_(static_cast<double>(model_->weights.stored_bytes) /
                                      static_cast<double>(target.weights.stored_bytes)),
      capacity_(std::min<uint64_t>(capacity, model_->config.context)) {}

ModelDrafter::~ModelDrafter() = default;

void ModelDrafter::rewound(uint64_t position) noexcept {
    common_ = std::min(common_, position);
}

bool ModelDrafter::release() noexcept {
    common_ = 0;
    const bool held = timeline_.has_value();
    timeline_.reset();
    return held;
}

// Makes the timeline's log equal to the place's log and the token drawn for it.
void ModelDrafter::catch_up(const DraftPlace &place) {
    if (!timeline_) {
        TimelineOptions options;
        options.capacity = capacity_;
        // Rejected proposals are cut off, which may cross the end of a small window.
        options.window_retain = std::max<uint64_t>(model_->groups.back().window, kPage);
        timeline_.emplace(*model_, options);
        common_ = 0;
    }
    Timeline &own = *timeline_;
    const uint64_t position = place.log.size();
    const uint64_t both = std::min<uint64_t>(own.position(), position);
    while (common_ < both && own.log[common_].token == place.log[common_].token) {
        ++common_;
    }
    // The common beginning is kept if a rewind can reach it; else everything is computed again.
    if (common_ > 0 && common_ >= own.rewind_floor()) {
        own.shorten(common_);
    } else if (common_ < own.position()) {
        own.rewind(0);
        common_ = 0;
    }
    entries_.clear();
    for (uint64_t i = common_; i < position; ++i) {
        entries_.push_back({place.log[i].token});
    }
    entries_.push_back({place.next});
    AppendOptions run;
    run.watch = place.watch;
    append(own, entries_, run);
    common_ = position;
}

namespace {

uint32_t sample_next(Timeline &timeline, const Sampling &sampling, const DraftMask &mask) {
    PassLease pass(*timeline.network);
    return draw_next(timeline, sampling, mask.allowed(), *pass);
}

// Draws tokens, and appends all but the last.
void draw(Timeline &timeline, const DraftPlace &place, size_t count,
          std::vector<uint32_t> &tokens) {
    for (DraftMask mask(place); mask.any();) {
        const TokenEntry entry{sample_next(timeline, place.sampling, mask)};
        tokens.push_back(entry.token);
        if (--count == 0) {
            return;
        }
        append(timeline, {&entry, 1}, {});
        mask.take(entry.token);
    }
}

} // namespace

void ModelDrafter::propose(const DraftPlace &place, size_t most, std::vector<uint32_t> &tokens) {
    if (place.log.size() >= capacity_) {
        return; // the model's context ends
    }
    most = std::min<uint64_t>(most, capacity_ - place.log.size());
    if (most == 0) {
        return;
    }
    catch_up(place);
    if (timeline_->states.used()) { // a copy's tokens need not be taken back
        Timeline copy(*timeline_);
        draw(copy, place, most, tokens);
    } else {
        draw(*timeline_, place, most, tokens);
    }
}

namespace {

constexpr double kRowCost = 0.15; // cost of one more row, in passes (tools/benchmarks/sessions.md)
constexpr double kGainMin = 1.05; // a smaller expected gain is not worth a try
constexpr double kMemory = 1.0 / 8;
constexpr uint32_t kRestMin = 4;  // passes between two tries
constexpr uint32_t kRestMax = 64; // of a cheap drafter
// For an expensive drafter, which must also read the tokens generated meanwhile.
constexpr uint32_t kRestMaxDear = 256;
constexpr double kDear = 0.2;

} // namespace

DraftLength::DraftLength(const DraftOptions &options, double cost)
    : least_(options.tokens_min), most_(options.tokens_max), cost_(cost),
      never_(least_ != most_ && gain(most_, 1) < kGainMin), rest_next_(kRestMin),
      rest_max_(cost < kDear ? kRestMax : kRestMaxDear) {}

double DraftLength::gain(size_t tokens, double right) const {
    // Tokens expected from a pass; the share for which all proposals so far are right.
    double expected = 1, all = 1;
    for (size_t i = 0; i < tokens; ++i) {
        all *= right;
        expected += all;
    }
    return expected / (1 + static_cast<double>(tokens) * (cost_ + kRowCost));
}

size_t DraftLength::best() const {
    size_t best = least_;
    for (size_t tokens = least_ + 1; tokens <= most_; ++tokens) {
        best = gain(tokens, right_) > gain(best, right_) ? tokens : best;
    }
    return best;
}

size_t DraftLength::wanted() const {
    if (rest_ > 0 || never_) {
        return 0;
    }
    const size_t tokens = best();
    return gain(tokens, right_) >= kGainMin ? tokens : least_;
}

void DraftLength::began(size_t proposed) {
    if (rest_ > 0) {
        --rest_;
    } else if (least_ == most_ || gain(best(), right_) >= kGainMin) {
        rest_next_ = kRestMin;
    } else if (proposed > 0) {
        rest_ = rest_next_;
        rest_next_ = std::min(2 * rest_next_, rest_max_);
    }
}

void DraftLength::note(bool right) {
    right_ += ((right ? 1.0 : 0.0) - right_) * kMemory;
}

} // namespace stasis
