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

// Throws FileError(io) unless the file is of this kind: a regular file that begins with the magic,
// or with a part of it followed by nothing. A file of another kind under this name must stay.
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

// Tries once to create and lock the file. Returns nothing if another process changed it meanwhile,
// or if a leftover had to be removed first.
std::optional<File> try_create(const FileOperations &files, const std::string &name,
                               const AtomicKind &kind) {
    constexpr int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
    std::string own_name = name; // nothing may need memory between creating and owning the file

    // Create it, or open what is in its place.
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

    // Lock it. If the name no longer refers to the file, another writer has renamed or removed it.
    File file(files, descriptor, std::move(own_name));
    try {
        file.lock();
        if (!file.still_there()) {
            return std::nullopt;
        }
        if (created) {
            if (kind.mode) {
                file.set_mode(*kind.mode); // undoes the process's mask
            }
            return file;
        }
        // A leftover without a lock: remove it.
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

// Repeats try_create; each removed leftover or lost race costs one attempt.
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
            check_ours(written, kind); // a power loss left a rename half done
            files.remove(name.c_str());
            return;
        }

        // Another file: it may only be removed if no writer has locked it.
        const int descriptor =
            files.open(name.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
        if (descriptor < 0) {
            return;
        }
        File file(files, descriptor, name);
        file.lock();
        check_ours(file, kind);
        if (file.still_there()) {
            files.remove(name.c_str());
        }
    } catch (const Error &) {
        // In use, or not of this kind: it stays and does no harm.
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

// Returns false, with errno set, if the file was not renamed.
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
    struct stat status {}; // this file system has no rename that keeps an existing file
    if (files.path_status(to, &status) == 0) {
        errno = EEXIST;
        return false;
    }
    return files.rename(from, to) == 0;
}

void AtomicFile::commit() {
    // Everything that needs a descriptor or memory comes before the rename, the message of the last
    // possible failure included: after the rename no error may claim that the old file is still in
    // place.
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
