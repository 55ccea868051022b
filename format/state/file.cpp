// The system's file calls and loops around their short counts and interruptions; see file.h.
#include "format/state/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

namespace stasis {

namespace {

// Returns the wording for a save; see FileError.
const char *words(FileFailure failure) {
    switch (failure) {
    case FileFailure::create:
        return "cannot create";
    case FileFailure::open:
    case FileFailure::open_directory:
        return "cannot open";
    case FileFailure::look_up:
        return "cannot look up";
    case FileFailure::read_size:
        return "cannot read the size";
    case FileFailure::read:
        return "cannot read";
    case FileFailure::write:
        return "cannot write";
    case FileFailure::cut:
        return "cannot cut";
    case FileFailure::set_mode:
        return "cannot set the mode";
    case FileFailure::sync:
        return "cannot sync";
    case FileFailure::lock:
        return "cannot lock";
    case FileFailure::rename:
        return "cannot rename the finished save to";
    case FileFailure::remove:
        return "cannot remove";
    case FileFailure::in_use:
        return "another save of this file is running";
    case FileFailure::crowded:
        return "other saves of this file keep running";
    case FileFailure::in_the_way:
        return "in the way of saving, and not left by an unfinished save";
    case FileFailure::unsynced:
        return "the new file is in place, but may not survive a power loss: cannot sync its "
               "directory";
    }
    return "";
}

int list_names(const char *path, std::vector<std::string> *names) {
    const std::unique_ptr<DIR, int (*)(DIR *)> directory(::opendir(path), ::closedir);
    if (directory == nullptr) {
        return -1;
    }
    for (;;) {
        errno = 0; // the end is told from a failure by it
        const dirent *const entry = ::readdir(directory.get());
        if (entry == nullptr) {
            return errno == 0 ? 0 : -1;
        }
        const std::string_view name = entry->d_name;
        if (name != "." && name != "..") {
            names->emplace_back(name);
        }
    }
}

} // namespace

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
        [](int descriptor) { return ::flock(descriptor, LOCK_UN); },
        [](const char *from, const char *to) { return std::rename(from, to); },
        [](const char *from, const char *to) {
            return ::renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE);
        },
        [](const char *path) { return ::unlink(path); },
        [](int descriptor) { return ::close(descriptor); },
        [](int descriptor) { return ::flock(descriptor, LOCK_SH | LOCK_NB); },
        [](const char *from, const char *to) { return ::link(from, to); },
        [](const char *path, mode_t mode) { return ::mkdir(path, mode); },
        list_names,
    };
    return operations;
}

FileError::FileError(Status status, FileFailure failure, std::string path, int number)
    : Error(status, path + ": " + words(failure) +
                        (number == 0 ? "" : ": " + std::generic_category().message(number))),
      failure_(failure), path_(std::move(path)), number_(number) {}

void fail_file(Status status, FileFailure failure, const std::string &path, int number) {
    throw FileError(status, failure, path, number);
}

File::File(const FileOperations &files, int descriptor, std::string path)
    : files_(&files), descriptor_(descriptor), path_(std::move(path)) {}

File::~File() {
    if (descriptor_ >= 0) {
        if (locked_) {
            // Closing does not end the lock while a process that another thread has just started
            // holds a copy of the descriptor.
            files_->unlock(descriptor_);
        }
        files_->close(descriptor_); // what was written is already synced or given up
    }
}

File::File(File &&other) noexcept
    : files_(other.files_), descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)), locked_(std::exchange(other.locked_, false)) {}

struct stat File::status() const {
    struct stat result {};
    if (files_->status(descriptor_, &result) != 0) {
        fail_file(Status::io, FileFailure::read_size, path_, errno);
    }
    return result;
}

bool File::still_there() const {
    struct stat at_path {};
    if (files_->path_status(path_.c_str(), &at_path) != 0) {
        if (errno == ENOENT) {
            return false;
        }
        fail_file(Status::io, FileFailure::look_up, path_, errno);
    }
    const struct stat opened = status();
    return at_path.st_dev == opened.st_dev && at_path.st_ino == opened.st_ino;
}

void File::lock() {
    if (files_->lock(descriptor_) == 0) {
        locked_ = true;
        return;
    }
    if (errno == EWOULDBLOCK) {
        fail_file(Status::busy, FileFailure::in_use, path_);
    }
    fail_file(Status::io, FileFailure::lock, path_, errno);
}

bool File::lock_shared() {
    if (files_->lock_shared(descriptor_) != 0) {
        if (errno == EWOULDBLOCK) {
            return false;
        }
        fail_file(Status::io, FileFailure::lock, path_, errno);
    }
    locked_ = true;
    return true;
}

size_t File::read_some(void *data, size_t size_bytes, uint64_t offset) const {
    auto *to = static_cast<uint8_t *>(data);
    size_t done = 0;
    while (done < size_bytes) {
        const ssize_t count = files_->read_at(descriptor_, to + done, size_bytes - done,
                                              static_cast<off_t>(offset + done));
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            fail_file(Status::io, FileFailure::read, path_, errno);
        }
        if (count == 0) {
            break;
        }
        done += static_cast<size_t>(count);
    }
    return done;
}

void File::read(void *data, size_t size_bytes, uint64_t offset) const {
    const size_t done = read_some(data, size_bytes, offset);
    if (done < size_bytes) {
        fail(Status::corrupt, "the file ends at byte %llu, %zu bytes early",
             static_cast<Number>(offset + done), size_bytes - done);
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
            // A device that accepts no bytes would make this loop endless.
            fail_file(Status::io, FileFailure::write, path_, count == 0 ? EIO : errno);
        }
        from += count;
        offset += static_cast<uint64_t>(count);
        size_bytes -= static_cast<size_t>(count);
    }
}

void File::set_size(uint64_t size_bytes) const {
    if (files_->set_size(descriptor_, static_cast<off_t>(size_bytes)) != 0) {
        fail_file(Status::io, FileFailure::cut, path_, errno);
    }
}

void File::set_mode(mode_t mode) const {
    if (files_->set_mode(descriptor_, mode) != 0) {
        fail_file(Status::io, FileFailure::set_mode, path_, errno);
    }
}

void File::sync() const {
    if (files_->sync(descriptor_) != 0) {
        fail_file(Status::io, FileFailure::sync, path_, errno);
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
        const int number = errno;
        fail_file(number == ENOENT ? Status::not_found : Status::io, FileFailure::open, path,
                  number);
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
        fail_file(Status::io, FileFailure::open_directory, directory, errno);
    }
    return {files, descriptor, directory};
}

} // namespace stasis
