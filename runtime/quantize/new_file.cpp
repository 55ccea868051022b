// See new_file.h.
#include "runtime/quantize/new_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "format/state/error.h"
#include "format/state/temporary_name.h"

namespace stasis {

namespace {

[[noreturn]] void fail_errno(const char *operation, const std::string &path) {
    const int number = errno;
    fail(Status::io, "cannot %s %s: %s", operation, path.c_str(), std::strerror(number));
}

// Whether an open file begins as GGUF files do, with at least that many of their four first bytes.
// None, errno being set: it cannot be read.
std::optional<bool> begins_as_gguf(int descriptor, size_t least) {
    char magic[4] = {};
    size_t size = 0;
    for (ssize_t count = 1; count != 0 && size < sizeof magic;) {
        count = pread(descriptor, magic + size, sizeof magic - size, static_cast<off_t>(size));
        if (count < 0 && errno != EINTR) {
            return {};
        }
        size += count > 0 ? static_cast<size_t>(count) : 0;
    }
    return size >= least && std::memcmp(magic, "GGUF", size) == 0;
}

// Whether `path` names the open file.
bool is_file_of(int descriptor, const std::string &path) {
    struct stat own {
    }, named{};
    return fstat(descriptor, &own) == 0 && lstat(path.c_str(), &named) == 0 &&
           own.st_dev == named.st_dev && own.st_ino == named.st_ino;
}

} // namespace

NewFile::NewFile(const std::string &path, bool replace)
    : path_(path), written_(temporary_name(path, ".writing")), replace_(replace) {
    check_target();
    for (int attempt = 0; descriptor_ < 0; ++attempt) {
        if (attempt == 16) {
            fail(Status::busy, "%s: others keep writing this file", path_.c_str());
        }
        try_create();
    }
}

NewFile::~NewFile() {
    if (!committed_) {
        unlink(written_.c_str());
    }
    close(descriptor_);
}

void NewFile::check_target() const {
    struct stat status {};
    if (lstat(path_.c_str(), &status) != 0) {
        if (errno == ENOENT) {
            return;
        }
        fail_errno("write", path_);
    }
    if (!replace_) {
        fail(Status::invalid_argument, "%s: this is there already, and was not to be replaced",
             path_.c_str());
    }
    const int old = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (old < 0 && S_ISREG(status.st_mode)) {
        fail_errno("open", path_);
    }
    const std::optional<bool> gguf = S_ISREG(status.st_mode) ? begins_as_gguf(old, 4) : false;
    const int number = errno;
    if (old >= 0) {
        close(old);
    }
    if (!gguf.has_value()) {
        errno = number;
        fail_errno("read", path_);
    }
    if (!*gguf) {
        fail(Status::invalid_argument, "%s: this is there already, and no GGUF file to be replaced",
             path_.c_str());
    }
}

// True once the file is made and locked; false where a leftover had to be removed first.
bool NewFile::try_create() {
    constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
    int descriptor = open(written_.c_str(), kFlags | O_CREAT | O_EXCL, 0666);
    const bool created = descriptor >= 0;
    if (!created && errno == EEXIST) {
        descriptor = open(written_.c_str(), kFlags | O_NONBLOCK);
        if (descriptor < 0 && errno == ENOENT) {
            return false;
        }
    }
    if (descriptor < 0) {
        fail_errno("create", written_);
    }
    // The lock belongs to the open file: who is killed leaves none.
    if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
        const int number = errno;
        if (created && number != EWOULDBLOCK) {
            unlink(written_.c_str()); // nobody else has it
        }
        close(descriptor);
        errno = number;
        if (number != EWOULDBLOCK) {
            fail_errno("lock", written_);
        }
        fail(Status::busy, "%s: another process is writing this file", written_.c_str());
    }
    if (created && is_file_of(descriptor, written_)) {
        descriptor_ = descriptor;
        return true;
    }
    struct stat status {};
    const bool file = !created && fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
    const std::optional<bool> begins = file ? begins_as_gguf(descriptor, 0) : false;
    if (!begins.has_value()) {
        const int number = errno;
        close(descriptor);
        errno = number;
        fail_errno("read", written_);
    }
    const bool leftover = *begins;
    const bool named = is_file_of(descriptor, written_);
    if (leftover && named) {
        unlink(written_.c_str());
    }
    close(descriptor);
    if (!created && !leftover) {
        fail(Status::io, "%s: in the way of writing, and not left by an unfinished call",
             written_.c_str());
    }
    return false;
}

void NewFile::write(const void *data, size_t size_bytes, uint64_t offset) const {
    const auto *bytes = static_cast<const char *>(data);
    while (size_bytes > 0) {
        const ssize_t written = pwrite(descriptor_, bytes, size_bytes, static_cast<off_t>(offset));
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            errno = written < 0 ? errno : ENOSPC;
            fail_errno("write", written_);
        }
        bytes += written;
        size_bytes -= static_cast<size_t>(written);
        offset += static_cast<uint64_t>(written);
    }
}

void NewFile::set_size(uint64_t size_bytes) const {
    if (ftruncate(descriptor_, static_cast<off_t>(size_bytes)) != 0) {
        fail_errno("write", written_);
    }
}

// False, with errno EEXIST where something has appeared under the name.
bool NewFile::rename_written() const {
    const char *from = written_.c_str(), *to = path_.c_str();
    if (replace_) {
        return std::rename(from, to) == 0;
    }
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) {
        return true;
    }
    if (errno != EINVAL && errno != ENOSYS) {
        return false;
    }
    struct stat status {}; // not on this file system
    if (lstat(to, &status) == 0) {
        errno = EEXIST;
        return false;
    }
    return std::rename(from, to) == 0;
}

void NewFile::commit() {
    const size_t slash = path_.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
    const int directory = open(folder.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY);
    if (directory < 0) {
        fail_errno("open the folder", folder);
    }
    const bool synced = fsync(descriptor_) == 0;
    const bool renamed = synced && rename_written();
    const int number = errno;
    committed_ = renamed;
    const bool durable = renamed && fsync(directory) == 0;
    close(directory);
    errno = number;
    if (!renamed && synced && errno == EEXIST) {
        check_target(); // says what is in the way
        errno = EEXIST; // and it has gone again
    }
    if (!renamed) {
        fail_errno("finish", path_);
    }
    if (!durable) {
        fail(Status::io, "%s: the file is in place, but may not survive a power loss",
             path_.c_str());
    }
}

} // namespace stasis
