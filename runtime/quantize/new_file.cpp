// Writes a file that appears whole or not at all; see new_file.h.
#include "runtime/quantize/new_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "format/state/atomic_file.h"
#include "format/state/error.h"

namespace stasis {

namespace {

constexpr uint8_t kGgufMagic[4] = {'G', 'G', 'U', 'F'};
constexpr AtomicKind kQuantizedFile = {".writing", kGgufMagic, {}};

[[noreturn]] void fail_call(const char *operation, const std::string &path, int number) {
    fail(Status::io, "cannot %s %s: %s", operation, path.c_str(),
         std::generic_category().message(number).c_str());
}

// Throws unless the path is free, or has a GGUF file that may be replaced.
void check_target(const FileOperations &files, const std::string &path, bool replace) {
    struct stat status {};
    if (files.path_status(path.c_str(), &status) != 0) {
        if (errno == ENOENT) {
            return;
        }
        fail_call("write", path, errno);
    }
    if (!replace) {
        fail(Status::invalid_argument, "%s: this is there already, and was not to be replaced",
             path.c_str());
    }
    uint8_t begin[sizeof kGgufMagic] = {};
    if (S_ISREG(status.st_mode)) {
        const int descriptor =
            files.open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
        if (descriptor < 0) {
            fail_call("open", path, errno);
        }
        File(files, descriptor, path).read_some(begin, sizeof begin, 0);
    }
    if (!std::equal(begin, std::end(begin), kGgufMagic)) {
        fail(Status::invalid_argument, "%s: this is there already, and no GGUF file to be replaced",
             path.c_str());
    }
}

// Converts a failure of the file for `path` to an error in the words of quantizing.
[[noreturn]] void fail_in_words(const FileError &error, const std::string &path) {
    const std::string &named = error.path();
    switch (error.failure()) {
    case FileFailure::create:
    case FileFailure::open:
        fail_call("create", named, error.number());
    case FileFailure::open_directory:
        fail_call("open the folder",
                  path.find('/') == std::string::npos ? "." : path.substr(0, path.rfind('/') + 1),
                  error.number());
    case FileFailure::look_up:
    case FileFailure::read_size:
        fail_call("examine", named, error.number());
    case FileFailure::read:
        fail_call("read", named, error.number());
    case FileFailure::write:
    case FileFailure::cut:
    case FileFailure::set_mode:
        fail_call("write", named, error.number());
    case FileFailure::sync:
    case FileFailure::rename:
        fail_call("finish", path, error.number());
    case FileFailure::lock:
        fail_call("lock", named, error.number());
    case FileFailure::remove:
        fail_call("remove", named, error.number());
    case FileFailure::in_use:
        fail(Status::busy, "%s: another process is writing this file", named.c_str());
    case FileFailure::crowded:
        fail(Status::busy, "%s: others keep writing this file", path.c_str());
    case FileFailure::in_the_way:
        fail(Status::io, "%s: in the way of writing, and not left by an unfinished call",
             named.c_str());
    case FileFailure::unsynced:
        fail(Status::io, "%s: the file is in place, but may not survive a power loss",
             path.c_str());
    }
    throw error;
}

} // namespace

void write_new_file(const std::string &path, bool replace,
                    const std::function<void(const File &file)> &write,
                    const FileOperations &files) {
    try {
        check_target(files, path, replace);
        AtomicFile whole(files, path, kQuantizedFile, replace);
        write(whole.file());
        try {
            whole.commit();
        } catch (const FileError &error) {
            if (error.failure() == FileFailure::rename && error.number() == EEXIST) {
                check_target(files, path, replace); // throws if a file is in the way
            }
            throw; // the file in the way has gone again
        }
    } catch (const FileError &error) {
        fail_in_words(error, path);
    }
}

} // namespace stasis
