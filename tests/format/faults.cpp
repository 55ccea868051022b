// See faults.h.
#include "faults.h"

#include <algorithm>
#include <cerrno>

#include "sample.h"

namespace stasis::format {

namespace {

Fault current;
std::vector<std::string> seen;

// Whether the operation that begins now fails.
bool fails(const char *name) {
    const int index = static_cast<int>(seen.size());
    seen.emplace_back(name);
    const bool fail =
        current.at >= 0 && (index == current.at || (current.dead && index > current.at));
    errno = fail ? current.error : errno;
    return fail;
}

size_t shortened(size_t size_bytes) {
    return current.short_counts ? std::min<size_t>(size_bytes, 1000) : size_bytes;
}

bool interrupted() {
    errno = EINTR;
    return current.short_counts && seen.size() % 3 == 0;
}

FileOperations make() {
    FileOperations files{};
    files.open = [](const char *path, int flags, mode_t mode) {
        return fails("open") ? -1 : system_files().open(path, flags, mode);
    };
    files.status = [](int descriptor, struct stat *status) {
        return fails("status") ? -1 : system_files().status(descriptor, status);
    };
    files.path_status = [](const char *path, struct stat *status) {
        return fails("path_status") ? -1 : system_files().path_status(path, status);
    };
    files.read_at = [](int descriptor, void *data, size_t size_bytes, off_t offset) -> ssize_t {
        if (fails("read_at") || interrupted()) {
            return -1;
        }
        return system_files().read_at(descriptor, data, shortened(size_bytes), offset);
    };
    files.write_at = [](int descriptor, const void *data, size_t size_bytes,
                        off_t offset) -> ssize_t {
        const bool first = static_cast<int>(seen.size()) == current.at;
        if (fails("write_at")) {
            if (current.torn && first) {
                system_files().write_at(descriptor, data, size_bytes / 2, offset);
                errno = current.error;
            }
            return -1;
        }
        if (interrupted()) {
            return -1;
        }
        return system_files().write_at(descriptor, data, shortened(size_bytes), offset);
    };
    files.sync = [](int descriptor) {
        return fails("sync") ? -1 : system_files().sync(descriptor);
    };
    files.set_size = [](int descriptor, off_t size_bytes) {
        return fails("set_size") ? -1 : system_files().set_size(descriptor, size_bytes);
    };
    files.lock = [](int descriptor) {
        return fails("lock") ? -1 : system_files().lock(descriptor);
    };
    files.rename = [](const char *from, const char *to) {
        const int result = fails("rename") ? -1 : system_files().rename(from, to);
        refuse_memory(current.starved && result == 0);
        return result;
    };
    files.remove = [](const char *path) {
        return fails("remove") ? -1 : system_files().remove(path);
    };
    files.close = [](int descriptor) { return system_files().close(descriptor); };
    return files;
}

} // namespace

const FileOperations &faulty_files(const Fault &fault) {
    static const FileOperations operations = make();
    current = fault;
    seen.clear();
    seen.reserve(1000); // so that noting an operation needs no memory
    return operations;
}

const std::vector<std::string> &operations_seen() {
    return seen;
}

} // namespace stasis::format
