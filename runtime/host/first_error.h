// Keeps the first exception that threads throw while they work side by side, for the caller.
#pragma once

#include <exception>
#include <mutex>

namespace stasis {

class FirstError {
  public:
    template <typename Work> void guard(const Work &work) noexcept {
        try {
            work();
        } catch (...) {
            const std::lock_guard lock(mutex_);
            if (!error_) {
                error_ = std::current_exception();
            }
        }
    }
    void rethrow() const {
        if (error_) {
            std::rethrow_exception(error_);
        }
    }

  private:
    std::mutex mutex_;
    std::exception_ptr error_;
};

} // namespace stasis
