// Tickets and passes; see gate.h.
#include "abi/gate.h"

#include <cassert>

namespace stasis::abi {

Gate::Answer Gate::enter(bool alone, bool changes, bool waits) {
    std::unique_lock lock(mutex_);
    const auto owned = [&] { return changes && owner_ != Owner::none; };
    if (owned()) {
        return refusal();
    }
    if (alone_ != kNone || (!waits && (served_ != given_ || pass_ != kNone))) {
        return Answer::busy;
    }
    const uint64_t ticket = given_++;
    alone_ = alone ? ticket : alone_;
    changed_.wait(lock, [&] { return served_ == ticket && ticket < pass_; });
    if (owned()) { // since one of those before it
        pass_on();
        return refusal();
    }
    return Answer::in;
}

Gate::Answer Gate::refusal() const {
    assert(owner_ != Owner::none);
    return owner_ == Owner::generation ? Answer::generation : Answer::scheduler;
}

// Lets the next ticket in.
void Gate::pass_on() noexcept {
    assert(served_ < given_ && served_ < pass_);
    alone_ = alone_ == served_ ? kNone : alone_;
    ++served_;
    changed_.notify_all();
}

bool Gate::leave() noexcept {
    const std::lock_guard lock(mutex_);
    pass_on();
    return served_ == pass_;
}

bool Gate::begin_pass(bool waits) {
    std::unique_lock lock(mutex_);
    assert(pass_ == kNone);
    if (!waits && served_ != given_) {
        return false;
    }
    pass_ = given_;
    changed_.wait(lock, [&] { return served_ == pass_; });
    return true;
}

bool Gate::try_pass() noexcept {
    const std::lock_guard lock(mutex_);
    pass_ = pass_ == kNone ? given_ : pass_;
    return served_ == pass_;
}

void Gate::end_pass() noexcept {
    const std::lock_guard lock(mutex_);
    pass_ = kNone;
    changed_.notify_all();
}

void Gate::set_owner(Owner owner) noexcept {
    const std::lock_guard lock(mutex_);
    owner_ = owner;
}

bool Gate::end_owner() noexcept {
    const std::lock_guard lock(mutex_);
    if (served_ == given_ && pass_ == kNone) {
        pass_ = given_;
        return true;
    }
    owner_ = Owner::none;
    return false;
}

Gate::Owner Gate::owner() const {
    const std::lock_guard lock(mutex_);
    return owner_;
}

bool Gate::held() const {
    const std::lock_guard lock(mutex_);
    return served_ != given_ || pass_ != kNone;
}

} // namespace stasis::abi
