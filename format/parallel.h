// How a long operation hands independent pieces of work to its caller's threads: plain data, so
// that this folder knows no thread pool. The runtime fills it from its own.
#pragma once

#include <cstddef>
#include <exception>
#include <vector>

namespace stasis::format {

struct Parallel {
    void *context = nullptr;
    // Calls work(data, i) once for each i below `count`, on any threads, and returns when all are
    // done; `work` does not throw. Null: the calling thread does all, in order.
    void (*run)(void *context, size_t count, void (*work)(void *data, size_t i),
                void *data) = nullptr;
};

// Calls work(i) for each i below `count`. What one of them throws is thrown when all are done; of
// several, that of the lowest i.
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
