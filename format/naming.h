// Error messages about the contents of a file, which begin with its path.
#pragma once

#include <string>

#include "format/state/error.h"

namespace stasis::format {

// Runs `check` and returns its result. Inserts the file's path before the message of an
// Error(corrupt) or Error(version).
template <class Check> auto naming(const std::string &path, Check check) {
    try {
        return check();
    } catch (const Error &error) {
        if (error.status() != Status::corrupt && error.status() != Status::version) {
            throw;
        }
        throw Error(error.status(), path + ": " + error.what());
    }
}

} // namespace stasis::format
