// Stasis for C++20: threads that models share. Included by stasis.hpp.
#pragma once

#include "stasis/options.hpp"

namespace stasis {

// How a pool is made: stasis_threads_options.
struct ThreadsOptions {
    std::uint32_t count = 0; // that compute, the caller's included; 0: one for each CPU or core
    std::vector<std::uint32_t> cpus = {}; // on any of which the started threads run
    std::string name = {};                // of the started threads; empty: their creator's
};

// Threads that any number of models compute with: ModelOptions::thread_pool. The results are the
// same. Models keep the threads that they were opened with, also after this is destroyed.
class Threads {
  public:
    explicit Threads(const ThreadsOptions &options = {}) {
        auto given = detail::sized<stasis_threads_options>();
        given.count = options.count;
        given.cpus = options.cpus.data();
        given.cpu_count = options.cpus.size();
        given.name = detail::c_option(options.name, "the name");
        stasis_threads *raw = nullptr;
        detail::call(
            [&](stasis_error *error) { return stasis_threads_create(&given, &raw, error); });
        handle_.reset(raw);
    }

    // For calls of the C interface; null after a move.
    stasis_threads *raw() const noexcept { return handle_.get(); }

  private:
    detail::Handle<stasis_threads, stasis_threads_free> handle_;
};

namespace detail {

// What options say of a pool. Throws Error if it was moved from: NULL would mean own threads.
inline stasis_threads *raw_of(const Threads *threads) {
    if (threads != nullptr && threads->raw() == nullptr) {
        throw Error(Status::InvalidArgument, "thread_pool: the threads were moved from");
    }
    return threads == nullptr ? nullptr : threads->raw();
}

} // namespace detail
} // namespace stasis
