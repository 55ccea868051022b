// Opening and locking an existing file; see existing.h.
#include "format/existing.h"

#include <fcntl.h>

#include <cerrno>

namespace stasis::format {

namespace {

// Returns false if nothing is at the path. Throws Error(invalid_argument) for anything but a
// regular file.
bool check_regular(const FileOperations &files, const std::string &path) {
    struct stat status {};
    if (files.path_status(path.c_str(), &status) != 0) {
        if (errno == ENOENT) {
            return false;
        }
        fail_file(Status::io, FileFailure::look_up, path, errno);
    }
    if (!S_ISREG(status.st_mode)) {
        fail(Status::invalid_argument, "%s: is a %s; a save only replaces regular files",
             path.c_str(),
             S_ISLNK(status.st_mode)   ? "symbolic link"
             : S_ISDIR(status.st_mode) ? "directory"
                                       : "device, pipe or socket");
    }
    return true;
}

} // namespace

std::optional<File> lock_existing(const FileOperations &files, const std::string &path) {
    // Between two calls another save may replace the file: a lock counts only on the file that the
    // path still names afterwards.
    for (int attempt = 0; attempt < 16; ++attempt) {
        if (!check_regular(files, path)) {
            return std::nullopt;
        }
        constexpr int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
        const int descriptor = files.open(path.c_str(), flags, 0);
        if (descriptor < 0 && (errno == ENOENT || errno == ELOOP)) {
            continue; // it was removed or replaced after check_regular
        }
        if (descriptor < 0) {
            fail_file(Status::io, FileFailure::open, path, errno);
        }
        File file(files, descriptor, path);
        file.lock();
        if (file.still_there() && S_ISREG(file.status().st_mode)) {
            return file;
        }
    }
    fail_file(Status::busy, FileFailure::crowded, path);
}

} // namespace stasis::format
