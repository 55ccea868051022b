// File operations that fail on purpose: the Nth of them with an errno or a short count, alone or
// with everything after it (as if the process had been killed there).
#pragma once

#include <string>
#include <vector>

#include "format/file.h"

namespace stasis::format {

struct Fault {
    int at = -1;          // index of the operation that fails; -1: none
    int error = 5;        // its errno (EIO)
    bool dead = false;    // everything after it fails too and touches nothing
    bool torn = false;    // a failing write has written the first half of its bytes
    bool starved = false; // no memory can be had once a rename has succeeded
    bool short_counts =
        false; // every read and write moves at most 1000 bytes, some are interrupted
};

// The system's operations under `fault`; counts anew from 0.
const FileOperations &faulty_files(const Fault &fault);
// Names of the operations since then, in order, closes apart.
const std::vector<std::string> &operations_seen();

} // namespace stasis::format
