// Files that are being written; see new_file.h.
#include "format/store/new_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <new>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

namespace stasis::format {

namespace {

// Tries one name. Returns nothing if it is taken: another process of this number has it, or had it
// and was killed, or a collector has just removed it as a leftover.
std::optional<File> try_create(const FileOperations &files, const std::string &path) {
    std::string own_path = path; // nothing may need memory between creating and owning the file
    constexpr int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    const int descriptor = files.open(path.c_str(), flags, 0600);
    if (descriptor < 0) {
        if (errno == EEXIST) {
            return std::nullopt;
        }
        fail_file(Status::io, FileFailure::create, path, errno);
    }
    File file(files, descriptor, std::move(own_path));
    try {
        file.lock();
        return file.still_there() ? std::optional(std::move(file)) : std::nullopt;
    } catch (const Error &error) {
        if (error.status() == Status::busy) {
            return std::nullopt;
        }
        files.remove(path.c_str());
        throw;
    } catch (const std::bad_alloc &) {
        files.remove(path.c_str());
        throw;
    }
}

File create(const FileOperations &files, const std::string &folder) {
    static std::atomic<uint64_t> number{0};
    for (;;) {
        const std::string name = std::to_string(::getpid()) + "-" + std::to_string(++number);
        if (std::optional<File> file = try_create(files, folder + "/" + name)) {
            return std::move(*file);
        }
    }
}

[[noreturn]] void fail_to_place(const std::string &path, int number) {
    fail(Status::io, "%s: cannot give a new file this name: %s", path.c_str(),
         std::generic_category().message(number).c_str());
}

} // namespace

NewFile::NewFile(const FileOperations &files, const std::string &folder)
    : file_(create(files, folder)) {}

NewFile::~NewFile() {
    if (!placed_) {
        file_.files().remove(file_.path().c_str());
    }
}

void NewFile::write(std::span<const uint8_t> bytes) const {
    file_.write(bytes.data(), bytes.size(), 0);
    file_.sync();
}

bool NewFile::place_new(const std::string &path) {
    const FileOperations &files = file_.files();
    const char *const from = file_.path().c_str(), *const to = path.c_str();
    if (files.rename_new(from, to) == 0) {
        placed_ = true;
        return true;
    }
    if (errno == EINVAL || errno == ENOSYS) { // a file system without it: with a second name
        if (files.link(from, to) == 0) {
            return true; // and the first name goes at the end
        }
    }
    if (errno != EEXIST) {
        fail_to_place(path, errno);
    }
    return false;
}

void NewFile::place(const std::string &path) {
    if (file_.files().rename(file_.path().c_str(), path.c_str()) != 0) {
        fail_to_place(path, errno);
    }
    placed_ = true;
}

void remove_leftovers(const FileOperations &files, const std::string &folder) {
    std::vector<std::string> names;
    if (files.list(folder.c_str(), &names) != 0) {
        return;
    }
    for (const std::string &name : names) {
        const std::string path = folder + "/" + name;
        constexpr int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
        const int descriptor = files.open(path.c_str(), flags, 0);
        if (descriptor < 0) {
            continue;
        }
        try {
            File file(files, descriptor, path);
            file.lock();
            if (file.still_there()) { // not placed meanwhile
                files.remove(path.c_str());
            }
        } catch (const Error &) {
            // A writer has it.
        }
    }
}

} // namespace stasis::format
