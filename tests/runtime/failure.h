// The status and message that a call fails with.
#pragma once

#include <functional>
#include <string>

#include "format/state/error.h"

namespace stasis::test {

// ok: it does not fail.
struct Failure {
    Status status = Status::ok;
    std::string message;
};

inline Failure failure_of(const std::function<void()> &work) {
    try {
        work();
    } catch (const Error &error) {
        return {error.status(), error.what()};
    }
    return {};
}

inline Status status_of(const std::function<void()> &work) {
    return failure_of(work).status;
}

inline std::string message_of(const std::function<void()> &work) {
    return failure_of(work).message;
}

} // namespace stasis::test
