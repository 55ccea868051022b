// Opening snapshot files, for the subcommands that need no session.
#pragma once

#include <string>

#include "tools/handles.h"

namespace command {

inline Snapshot open_snapshot(const std::string &path) {
    stasis_snapshot *snapshot = nullptr;
    stasis_error error{};
    check(stasis_snapshot_open(path.c_str(), &snapshot, &error), error, path);
    return Snapshot(snapshot);
}

} // namespace command
