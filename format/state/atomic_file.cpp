// Creating, locking and renaming a file that is being written; see atomic_file.h.
#include "format/state/atomic_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <utility>

#include "format/state/temporary_name.h"

namespace stasis {

namespace {

// A file of the kind begins with the magic, or has not got all of it yet; anything else under this
// name is not ours.
void check_ours(const File &file, const AtomicKind &kind) {
    uint8_t begin[8] = {};
    assert(kind.magic.size() <= sizeof begin);
    const struct stat status = file.status();
    const bool regular = S_ISREG(status.st_mode);
    if (regular) {
        const auto size_bytes = static_cast<uint64_t>(status.st_size);
        file.read_some(begin, std::min<uint64_t>(kind.magic.size(), size_bytes), 0);
    }
    const uint8_t *const written =
        std::mismatch(kind.magic.begin(), kind.magic.end(), begin).second;
    if (!regular || std::any_of(written, std::cend(begin), [](uint8_t b) { return b != 0; })) {
        fail_file(Status::io, FileFailure::in_the_way, file.path());
    }
}

// One try; nothing if the file changed under our hands or a leftover had to be removed.
std::optional<File> try_create(const FileOperations &files, const std::string &name,
                               const AtomicKind &kind) {
    constexpr int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
    std::string own_name = name; // nothing may need memory between creating and owning the file
    int descriptor = files.open(name.c_str(), flags | O_CREAT | O_EXCL, kind.mode.value_or(0666));
    const bool created = descriptor >= 0;
    if (!created) {
        if (errno != EEXIST) {
            fail_file(Status::io, FileFailure::create, name, errno);
        }
        descriptor = files.open(name.c_str(), flags | O_NONBLOCK, 0);
        if (descriptor < 0 && errno == ENOENT) {
            return std::nullopt;
        }
        if (descriptor < 0) {
            fail_file(Status::io, FileFailure::open, name, errno);
        }
    }
    File file(files, descriptor, std::move(own_name));
    try {
        file.lock();
        if (!file.still_there()) {
            return std::nullopt;
        }
        if (created) {
            if (kind.mode) {
                file.set_mode(*kind.mode); // whatever the process's mask has made of it
            }
            return file;
        }
        check_ours(file, kind);
        if (files.remove(name.c_str()) != 0) {
            fail_file(Status::io, FileFailure::remove, name, errno);
        }
        return std::nullopt;
    } catch (const Error &error) {
        if (created && error.status() != Status::busy) {
            files.remove(
                name.c_str()); // not if another writer took it for a leftover and has it now
        }
        throw;
    } catch (const std::bad_alloc &) {
        if (created) {
            files.remove(name.c_str());
        }
        throw;
    }
}

File create(const FileOperations &files, const std::string &name, const AtomicKind &kind) {
    for (int attempt = 0; attempt < 16; ++attempt) {
        if (std::optional<File> file = try_create(files, name, kind)) {
            return std::move(*file);
        }
    }
    fail_file(Status::busy, FileFailure::crowded, name);
}

} // namespace

void clear_leftover(const File &written, const AtomicKind &kind) {
    const FileOperations &files = written.files();
    const std::string name = temporary_name(written.path(), kind.suffix);
    struct stat status {};
    if (files.path_status(name.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
        return;
    }
    try {
        const struct stat own = written.status();
        if (status.st_dev == own.st_dev && status.st_ino == own.st_ino) {
            check_ours(written, kind); // a rename of which a power loss has left the first half
            files.remove(name.c_str());
            return;
        }
        const int descriptor =
            files.open(name.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
        if (descriptor < 0) {
            return;
        }
        const File file(files, descriptor, name);
        file.lock();
        check_ours(file, kind);
        if (file.still_there()) {
            files.remove(name.c_str());
        }
    } catch (const Error &) {
        // In use, or not ours: it stays, and is in nobody's way.
    }
}

AtomicFile::AtomicFile(const FileOperations &files, const std::string &path, const AtomicKind &kind,
                       bool replace)
    : path_(path), replace_(replace),
      file_(create(files, temporary_name(path, kind.suffix), kind)) {}

AtomicFile::~AtomicFile() {
    if (!committed_) {
        file_.files().remove(file_.path().c_str());
    }
}

// False, errno being set: it has not got its name.
bool AtomicFile::rename() const {
    const FileOperations &files = file_.files();
    const char *const from = file_.path().c_str(), *const to = path_.c_str();
    if (replace_) {
        return files.rename(from, to) == 0;
    }
    if (files.rename_new(from, to) == 0) {
        return true;
    }
    if (errno != EINVAL && errno != ENOSYS) {
        return false;
    }
    struct stat status {}; // not on this file system
    if (files.path_status(to, &status) == 0) {
        errno = EEXIST;
        return false;
    }
    return files.rename(from, to) == 0;
}

void AtomicFile::commit() {
    // All that needs a descriptor or memory comes before the rename, the message of its one
    // possible failure included: an error must not read as if the old file were still there.
    const File directory = open_directory(file_.files(), path_);
    FileError unsynced(Status::io, FileFailure::unsynced, path_, 0);
    file_.sync();
    if (!rename()) {
        fail_file(Status::io, FileFailure::rename, path_, errno);
    }
    committed_ = true;
    if (file_.files().sync(directory.descriptor()) != 0) {
        throw FileError(std::move(unsynced));
    }
}

} // namespace stasis
