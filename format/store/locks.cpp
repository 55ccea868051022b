// Waiting for locks; see locks.h.
#include "format/store/locks.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

namespace stasis::format {

namespace {

// Returns false if others hold it.
bool try_lock(File &file, LockKind kind) {
    if (kind == LockKind::shared) {
        return file.lock_shared();
    }
    try {
        file.lock();
        return true;
    } catch (const Error &error) {
        if (error.status() != Status::busy) {
            throw;
        }
        return false;
    }
}

struct HeldFile : BackendLock {
    explicit HeldFile(File locked) : file(std::move(locked)) {}
    File file;
};

} // namespace

File wait_for_lock(const FileOperations &files, const std::string &path, LockKind kind,
                   const Watch &watch) {
    constexpr int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    std::string own_path = path; // nothing may need memory between opening and owning the file
    const int descriptor = files.open(path.c_str(), flags, 0600);
    if (descriptor < 0) {
        fail_file(Status::io, FileFailure::open, path, errno);
    }
    File file(files, descriptor, std::move(own_path));
    // Asked for again and again: a call that waits in the system could not be cancelled.
    std::chrono::microseconds pause(50);
    while (!try_lock(file, kind)) {
        watch.look(0, 1);
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, std::chrono::microseconds(5000));
    }
    return file;
}

std::unique_ptr<BackendLock> wait_for_store(const FileOperations &files, const StoreLocks &locks,
                                            LockKind kind, const Watch &watch) {
    const File turn = wait_for_lock(files, locks.turn, kind, watch);
    return std::make_unique<HeldFile>(wait_for_lock(files, locks.held, kind, watch));
}

} // namespace stasis::format
