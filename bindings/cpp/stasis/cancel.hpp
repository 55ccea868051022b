// Stasis for C++20: a handle that ends calls. Included by stasis.hpp.
#pragma once

#include <chrono>
#include <stop_token>

#include "stasis/error.hpp"

namespace stasis {

// How far a call has come, in the unit that its option names; 0 of 0 while the total is unknown.
struct Progressed {
    std::uint64_t done = 0, total = 0;
};

// Ends the calls that are given it, from any thread. A request holds until it is reset.
class Cancel {
  public:
    Cancel() {
        stasis_cancel *raw = nullptr;
        detail::call([&](stasis_error *error) { return stasis_cancel_create(&raw, error); });
        handle_.reset(raw);
    }
    // Requests are those of a std::stop_source or std::jthread, too.
    explicit Cancel(std::stop_token stop) : Cancel() {
        stop_ = std::make_unique<std::stop_callback<Request>>(std::move(stop), Request{raw()});
    }
    Cancel(Cancel &&) noexcept = default;
    Cancel &operator=(Cancel &&other) noexcept {
        if (this != &other) {
            stop_.reset(); // before the handle that it uses
            handle_ = std::move(other.handle_);
            stop_ = std::move(other.stop_);
        }
        return *this;
    }

    // Both may be called by signal handlers. They do nothing after a move.
    void request() const noexcept { stasis_cancel_request(raw()); }
    void reset() const noexcept { stasis_cancel_reset(raw()); }
    // Returns how far the last call that was given the handle has come.
    Progressed progress() const noexcept {
        Progressed progressed;
        stasis_cancel_progress(raw(), &progressed.done, &progressed.total);
        return progressed;
    }
    stasis_cancel *raw() const noexcept { return handle_.get(); }

  private:
    struct Request {
        stasis_cancel *raw;
        void operator()() const noexcept { stasis_cancel_request(raw); }
    };
    detail::Handle<stasis_cancel, stasis_cancel_release> handle_;
    std::unique_ptr<std::stop_callback<Request>> stop_; // ends before the handle
};

namespace detail {

// What options say of a time.
inline std::uint64_t raw_ms(std::chrono::milliseconds timeout) {
    if (timeout.count() < 0) {
        throw Error(Status::InvalidArgument, "timeout: expected 0 or more");
    }
    return static_cast<std::uint64_t>(timeout.count());
}

// What options say of a handle. Throws Error if it was moved from: such a call could not be ended.
inline stasis_cancel *raw_of(const Cancel *cancel) {
    if (cancel != nullptr && cancel->raw() == nullptr) {
        throw Error(Status::InvalidArgument, "cancel: the handle was moved from");
    }
    return cancel == nullptr ? nullptr : cancel->raw();
}

} // namespace detail
} // namespace stasis
