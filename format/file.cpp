// The system's file calls and loops around their short counts and interruptions; see file.h.
#include "format/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

namespace stasis::format {

const FileOperations &system_files() {
    static const FileOperations operations = {
        [](const char *path, int flags, mode_t mode) { return ::open(path, flags, mode); },
        [](int descriptor, struct stat *status) { return ::fstat(descriptor, status); },
        [](const char *path, struct stat *status) { return ::lstat(path, status); },
        [](int descriptor, void *data, size_t size_bytes, off_t offset) {
            return ::pread(descriptor, data, size_bytes, offset);
        },
        [](int descriptor, const void *data, size_t size_bytes, off_t offset) {
            return ::pwrite(descriptor, data, size_bytes, offset);
        },
        [](int descriptor, off_t size_bytes) { return ::ftruncate(descriptor, size_bytes); },
        [](int descriptor, mode_t mode) { return ::fchmod(descriptor, mode); },
        [](int descriptor) { return ::fsync(descriptor); },
        [](int descriptor, off_t offset, off_t size_bytes) {
            ::sync_file_range(descriptor, offset, size_bytes, SYNC_FILE_RANGE_WRITE);
        },
        [](int descriptor) { return ::flock(descriptor, LOCK_EX | LOCK_NB); },
        [](const char *from, const char *to) { return std::rename(from, to); },
        [](const char *path) { return ::unlink(path); },
        [](int descriptor) { return ::close(descriptor); },
    };
    return operations;
}

void fail_errno(Status status, const char *operation, const std::string &path) {
    const std::string reason = std::generic_category().message(errno);
    fail(status, "%s: cannot %s: %s", path.c_str(), operation, reason.c_str());
}

File::File(const FileOperations &files, int descriptor, std::string path)
    : files_(&files), descriptor_(descriptor), path_(std::move(path)) {}

File::~File() {
    if (descriptor_ >= 0) {
        files_->close(descriptor_); // what was written is already synced or given up
    }
}

File::File(File &&other) noexcept
    : files_(other.files_), descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)) {}

struct stat File::status() const {
    struct stat result {};
    if (files_->status(descriptor_, &result) != 0) {
        fail_errno(Status::io, "read the size", path_);
    }
    return result;
}

void File::read(void *data, size_t size_bytes, uint64_t offset) const {
    auto *to = static_cast<uint8_t *>(data);
    while (size_bytes > 0) {
        const ssize_t count =
            files_->read_at(descriptor_, to, size_bytes, static_cast<off_t>(offset));
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            fail_errno(Status::io, "read", path_);
        }
        if (count == 0) {
            fail(Status::corrupt, "the file ends at byte %llu, %zu bytes early",
                 static_cast<Number>(offset), size_bytes);
        }
        to += count;
        offset += static_cast<uint64_t>(count);
        size_bytes -= static_cast<size_t>(count);
    }
}

void File::write(const void *data, size_t size_bytes, uint64_t offset) const {
    const auto *from = static_cast<const uint8_t *>(data);
    while (size_bytes > 0) {
        const ssize_t count =
            files_->write_at(descriptor_, from, size_bytes, static_cast<off_t>(offset));
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            errno = count == 0 ? EIO : errno; // a device that takes nothing would loop for ever
            fail_errno(Status::io, "write", path_);
        }
        from += count;
        offset += static_cast<uint64_t>(count);
        size_bytes -= static_cast<size_t>(count);
    }
}

void File::set_size(uint64_t size_bytes) const {
    if (files_->set_size(descriptor_, static_cast<off_t>(size_bytes)) != 0) {
        fail_errno(Status::io, "cut", path_);
    }
}

void File::set_mode(mode_t mode) const {
    if (files_->set_mode(descriptor_, mode) != 0) {
        fail_errno(Status::io, "set the mode", path_);
    }
}

void File::sync() const {
    if (files_->sync(descriptor_) != 0) {
        fail_errno(Status::io, "sync", path_);
    }
}

void File::begin_sync(uint64_t offset, uint64_t size_bytes) const {
    files_->begin_sync(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(size_bytes));
}

FileStamp stamp_of(const struct stat &status) {
    const auto ns = [](const timespec &time) {
        return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
    };
    return {status.st_dev, status.st_ino, static_cast<uint64_t>(status.st_size), ns(status.st_mtim),
            ns(status.st_ctim)};
}

File open_file(const FileOperations &files, const std::string &path) {
    // Without O_NONBLOCK, opening a pipe would wait for its other end.
    const int descriptor = files.open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (descriptor < 0) {
        fail_errno(errno == ENOENT ? Status::not_found : Status::io, "open", path);
    }
    File file(files, descriptor, path);
    if (!S_ISREG(file.status().st_mode)) {
        fail(Status::io, "%s: not a regular file", path.c_str());
    }
    return file;
}

File open_directory(const FileOperations &files, const std::string &path) {
    const size_t slash = path.rfind('/');
    const std::string directory = slash == std::string::npos ? "."
                                  : slash == 0               ? "/"
                                                             : path.substr(0, slash);
    const int descriptor = files.open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (descriptor < 0) {
        fail_errno(Status::io, "open", directory);
    }
    return {files, descriptor, directory};
}

} // namespace stasis::format
