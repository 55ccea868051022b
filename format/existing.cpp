// Opening and locking a file that is there; see existing.h.
#include "format/existing.h"

#include <fcntl.h>

#include <cerrno>

namespace stasis::format {

namespace {

// False: nothing is there.
bool check_regular(const FileOperations &files, const std::string &path) {
    struct stat status {};
    if (files.path_status(path.c_str(), &status) != 0) {
        if (errno == ENOENT) {
            return false;
        }
        fail_errno(Status::io, "look up", path);
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

void lock(const File &file) {
    if (file.files().lock(file.descriptor()) == 0) {
        return;
    }
    if (errno == EWOULDBLOCK) {
        fail(Status::busy, "%s: another save of this file is running", file.path().c_str());
    }
    fail_errno(Status::io, "lock", file.path());
}

bool still_there(const File &file) {
    struct stat at_path {};
    if (file.files().path_status(file.path().c_str(), &at_path) != 0) {
        if (errno == ENOENT) {
            return false;
        }
        fail_errno(Status::io, "look up", file.path());
    }
    const struct stat opened = file.status();
    return at_path.st_dev == opened.st_dev && at_path.st_ino == opened.st_ino;
}

std::optional<File> lock_existing(const FileOperations &files, const std::string &path) {
    for (int attempt = 0; attempt < 16; ++attempt) {
        if (!check_regular(files, path)) {
            return std::nullopt;
        }
        constexpr int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
        const int descriptor = files.open(path.c_str(), flags, 0);
        if (descriptor < 0 && (errno == ENOENT || errno == ELOOP)) {
            continue; // it has just changed
        }
        if (descriptor < 0) {
            fail_errno(Status::io, "open", path);
        }
        File file(files, descriptor, path);
        lock(file);
        if (still_there(file) && S_ISREG(file.status().st_mode)) {
            return file;
        }
    }
    fail(Status::busy, "%s: other saves of this file keep running", path.c_str());
}

} // namespace stasis::format
