// SQLite's calls of the system, of which one fails, or all that take space from one on.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <string>

namespace stasis::format {

struct FailingVfs {
    int64_t at = -1;   // this call, from 0
    bool full = false; // and all later ones that take space, as on a full disk
    int64_t done = 0;
    std::string failed = {}; // the name of the last one that failed
};
FailingVfs &failing_vfs();

// All connections go through it while this lives.
class VfsInPlace {
  public:
    VfsInPlace();
    ~VfsInPlace();
    VfsInPlace(const VfsInPlace &) = delete;
    VfsInPlace &operator=(const VfsInPlace &) = delete;
};

} // namespace stasis::format
