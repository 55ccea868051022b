// Passes independent pieces of a long operation to its caller's threads. Plain data, which the
// runtime fills from its thread pool, so that this folder must not know a thread pool.
#pragma once

#include <cstddef>
#include <exception>
#include <vector>

namespace stasis::format {

struct Parallel {
    void *context = nullptr;
    // Calls work(data, i) once for each i below `count`, on any threads, and returns after all
    // calls. `work` must not throw. Null: the calling thread makes all calls, in order.
    void (*run)(void *context, size_t count, void (*work)(void *data, size_t i),
                void *data) = nullptr;
};

// Calls work(i) for each i below `count`. Exceptions of `work` are rethrown after all calls; of
// several, the one of the lowest i.
template <typename Work> void for_each(const Parallel &parallel, size_t count, const Work &work) {
    if (parallel.run == nullptr || count < 2) {
        for (size_t i = 0; i < count; ++i) {
            work(i);
        }
        return;
    }
    struct Shared {
        const Work &work;
        std::vector<std::exception_ptr> errors;
    } shared{work, std::vector<std::exception_ptr>(count)};
    parallel.run(
        parallel.context, count,
        [](void *data, size_t i) {
            Shared &own = *static_cast<Shared *>(data);
            try {
                own.work(i);
            } catch (...) {
                own.errors[i] = std::current_exception();
            }
        },
        &shared);
    for (const std::exception_ptr &error : shared.errors) {
        if (error) {
            std::rethrow_exception(error);
        }
    }
}

} // namespace stasis::format
