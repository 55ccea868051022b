// Creating, locking and renaming the file of a running save; see temporary.h.
#include "format/temporary.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "format/constants.h"
#include "format/existing.h"
#include "format/state/temporary_name.h"

namespace stasis::format {

namespace {

constexpr const char *kSuffix = ".saving";

// A save begins with the magic, or has not written all of it yet; anything else under this name is
// not ours.
void check_ours(const File &file) {
    const struct stat status = file.status();
    uint8_t begin[sizeof kMagic] = {};
    const bool regular = S_ISREG(status.st_mode);
    if (regular) {
        file.read(begin, std::min<size_t>(sizeof begin, static_cast<size_t>(status.st_size)), 0);
    }
    const size_t written = std::mismatch(begin, std::end(begin), kMagic).first - begin;
    if (!regular ||
        std::any_of(begin + written, std::end(begin), [](uint8_t b) { return b != 0; })) {
        fail(Status::io, "%s: in the way of saving, and not left by an unfinished save",
             file.path().c_str());
    }
}

// One try; nothing if the file changed under our hands or a leftover had to be removed.
std::optional<File> try_create(const FileOperations &files, const std::string &name) {
    constexpr int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
    std::string own_name = name; // nothing may need memory between creating and owning the file
    int descriptor = files.open(name.c_str(), flags | O_CREAT | O_EXCL, 0600);
    const bool created = descriptor >= 0;
    if (!created) {
        if (errno != EEXIST) {
            fail_errno(Status::io, "create", name);
        }
        descriptor = files.open(name.c_str(), flags | O_NONBLOCK, 0);
        if (descriptor < 0 && errno == ENOENT) {
            return std::nullopt;
        }
        if (descriptor < 0) {
            fail_errno(Status::io, "open", name);
        }
    }
    File file(files, descriptor, std::move(own_name));
    try {
        lock(file);
        if (!still_there(file)) {
            return std::nullopt;
        }
        if (created) {
            file.set_mode(0600); // whatever the process's mask has made of it
            return file;
        }
        check_ours(file);
        if (files.remove(name.c_str()) != 0) {
            fail_errno(Status::io, "remove", name);
        }
        return std::nullopt;
    } catch (const Error &error) {
        if (created && error.status() != Status::busy) {
            files.remove(
                name.c_str()); // not if another saver took it for a leftover and has it now
        }
        throw;
    } catch (const std::bad_alloc &) {
        if (created) {
            files.remove(name.c_str());
        }
        throw;
    }
}

File create(const FileOperations &files, const std::string &name) {
    for (int attempt = 0; attempt < 16; ++attempt) {
        if (std::optional<File> file = try_create(files, name)) {
            return std::move(*file);
        }
    }
    fail(Status::busy, "%s: other saves of this file keep running", name.c_str());
}

} // namespace

void clear_leftover(const File &saved) {
    const FileOperations &files = saved.files();
    const std::string name = temporary_name(saved.path(), kSuffix);
    struct stat status {};
    if (files.path_status(name.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
        return;
    }
    try {
        const struct stat own = saved.status();
        if (status.st_dev == own.st_dev && status.st_ino == own.st_ino) {
            check_ours(saved); // a rename of which a power loss has left only the first half
            files.remove(name.c_str());
            return;
        }
        const int descriptor =
            files.open(name.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
        if (descriptor < 0) {
            return;
        }
        const File file(files, descriptor, name);
        lock(file);
        check_ours(file);
        if (still_there(file)) {
            files.remove(name.c_str());
        }
    } catch (const Error &) {
        // In use, or not ours: it stays, and is in nobody's way.
    }
}

Temporary::Temporary(const FileOperations &files, const std::string &path)
    : path_(path), file_(create(files, temporary_name(path, kSuffix))) {}

Temporary::~Temporary() {
    if (!committed_) {
        file_.files().remove(file_.path().c_str());
    }
}

void Temporary::commit() {
    // All that needs a descriptor or memory comes before the rename, the message of its one
    // possible failure included: an error must not read as if the old file were still there.
    const File directory = open_directory(file_.files(), path_);
    Error unsynced(Status::io, path_ + ": the new file is in place, but may not survive a power "
                                       "loss: cannot sync its directory");
    file_.sync();
    if (file_.files().rename(file_.path().c_str(), path_.c_str()) != 0) {
        fail_errno(Status::io, "rename the finished save to", path_);
    }
    committed_ = true;
    if (file_.files().sync(directory.descriptor()) != 0) {
        throw Error(std::move(unsynced));
    }
}

} // namespace stasis::format
