// Messages about the contents of a file, with its path before them.
#pragma once

#include <string>

#include "format/state/error.h"

namespace stasis::format {

// Runs `check`; what it finds wrong with the contents is told with the file's path before it.
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
