// Locks between the processes, and the threads, that share a store on one machine: flock of files,
// which the system lets go when a process is killed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "format/state/file.h"
#include "format/state/watch.h"
#include "format/store/backend.h"

namespace stasis::format {

enum class LockKind { shared, alone };

// Opens the file, which is made with mode 0600 if it is not there, and waits for its lock. Throws
// Error(cancelled) or Error(timeout) if the watch ends it, Error(io).
File wait_for_lock(const FileOperations &files, const std::string &path, LockKind kind,
                   const Watch &watch);

// The lock of writers (shared) and of the collector (alone): two files, so that a row of writers
// that overlap cannot keep a collector out for ever. All take the turn first, of the same kind, and
// wait with it for the other file: a collector that waits so keeps new writers waiting.
struct StoreLocks {
    std::string turn, held; // paths
};
std::unique_ptr<BackendLock> wait_for_store(const FileOperations &files, const StoreLocks &locks,
                                            LockKind kind, const Watch &watch);

} // namespace stasis::format
