// See files.h. The program's own functions stand before those of the C library, which they look up
// and call.
#include "tests/failures/files.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>

namespace {

using failures::Fault;

constexpr int64_t kNever = INT64_MAX / 2;

std::atomic<int64_t> left{kNever}; // operations until one has the fault
std::atomic<Fault> fault{Fault::error};
std::atomic<const char *> faulty{nullptr};

bool is_next(const char *name) {
    if (left.load(std::memory_order_relaxed) > kNever / 2 || left.fetch_sub(1) != 0) {
        return false;
    }
    faulty = name;
    return true;
}

// Whether this call is to fail, errno being set. `full`: what a full disk, or a full table of
// descriptors, would make of it; 0: nothing.
bool fails(const char *name, int full) {
    const int codes[] = {EIO, full, EINTR, 0, 0};
    const int code = codes[static_cast<int>(fault.load())];
    if (code == 0 || !is_next(name)) {
        return false;
    }
    errno = code;
    return true;
}

size_t shortened(const char *name, size_t size) {
    return fault == Fault::partial && size > 1 && is_next(name) ? size / 2 : size;
}

bool ends(const char *name) {
    return fault == Fault::ended && is_next(name);
}

template <typename Function> Function *real(Function *, const char *name) {
    return reinterpret_cast<Function *>(dlsym(RTLD_NEXT, name));
}

} // namespace

namespace failures {

void fail_operation(Fault what, int64_t n) {
    fault = what;
    faulty = nullptr;
    left = n;
}

const char *end_of_faults() {
    left = kNever;
    return faulty;
}

} // namespace failures

#define STASIS_REAL(name) (static_cast<decltype(&name)>(real(&name, #name)))

#pragma GCC visibility push(default)

extern "C" {
int open(const char *path, int flags, ...) {
    static const auto next = real<int(const char *, int, mode_t)>(nullptr, "open");
    va_list more;
    va_start(more, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
    va_end(more);
    return fails("open", EMFILE) ? -1 : next(path, flags, mode);
}
ssize_t read(int file, void *data, size_t size) {
    static const auto next = STASIS_REAL(read);
    return fails("read", 0) ? -1 : ends("read") ? 0 : next(file, data, shortened("read", size));
}
ssize_t pread(int file, void *data, size_t size, off_t at) {
    static const auto next = STASIS_REAL(pread);
    return fails("pread", 0) ? -1
           : ends("pread")   ? 0
                             : next(file, data, shortened("pread", size), at);
}
ssize_t write(int file, const void *data, size_t size) {
    static const auto next = STASIS_REAL(write);
    return fails("write", ENOSPC) ? -1 : next(file, data, shortened("write", size));
}
ssize_t pwrite(int file, const void *data, size_t size, off_t at) {
    static const auto next = STASIS_REAL(pwrite);
    return fails("pwrite", ENOSPC) ? -1 : next(file, data, shortened("pwrite", size), at);
}
int ftruncate(int file, off_t size) noexcept {
    static const auto next = STASIS_REAL(ftruncate);
    return fails("ftruncate", ENOSPC) ? -1 : next(file, size);
}
int fsync(int) { // no test waits for the disk: no power is lost
    return fails("fsync", ENOSPC) ? -1 : 0;
}
int fchmod(int file, mode_t mode) noexcept {
    static const auto next = STASIS_REAL(fchmod);
    return fails("fchmod", 0) ? -1 : next(file, mode);
}
int flock(int file, int operation) noexcept {
    static const auto next = STASIS_REAL(flock);
    return fails("flock", 0) ? -1 : next(file, operation);
}
int rename(const char *from, const char *to) noexcept {
    static const auto next = STASIS_REAL(rename);
    return fails("rename", ENOSPC) ? -1 : next(from, to);
}
int renameat2(int from_folder, const char *from, int to_folder, const char *to,
              unsigned flags) noexcept {
    static const auto next = STASIS_REAL(renameat2);
    return fails("renameat2", ENOSPC) ? -1 : next(from_folder, from, to_folder, to, flags);
}
int link(const char *from, const char *to) noexcept {
    static const auto next = STASIS_REAL(link);
    return fails("link", ENOSPC) ? -1 : next(from, to);
}
int mkdir(const char *path, mode_t mode) noexcept {
    static const auto next = STASIS_REAL(mkdir);
    return fails("mkdir", ENOSPC) ? -1 : next(path, mode);
}
DIR *opendir(const char *path) {
    static const auto next = STASIS_REAL(opendir);
    return fails("opendir", EMFILE) ? nullptr : next(path);
}
int unlink(const char *path) noexcept {
    static const auto next = STASIS_REAL(unlink);
    return fails("unlink", 0) ? -1 : next(path);
}
int close(int file) { // which is closed even so
    static const auto next = STASIS_REAL(close);
    const bool failed = fails("close", 0);
    const int code = errno, done = next(file);
    errno = failed ? code : errno;
    return failed ? -1 : done;
}
int stat(const char *path, struct stat *status) noexcept {
    static const auto next = real<int(const char *, struct stat *)>(nullptr, "stat");
    return fails("stat", 0) ? -1 : next(path, status);
}
int lstat(const char *path, struct stat *status) noexcept {
    static const auto next = real<int(const char *, struct stat *)>(nullptr, "lstat");
    return fails("lstat", 0) ? -1 : next(path, status);
}
int fstat(int file, struct stat *status) noexcept {
    static const auto next = real<int(int, struct stat *)>(nullptr, "fstat");
    return fails("fstat", 0) ? -1 : next(file, status);
}
int access(const char *path, int mode) noexcept {
    static const auto next = STASIS_REAL(access);
    return fails("access", 0) ? -1 : next(path, mode);
}
void *mmap(void *at, size_t size, int protection, int flags, int file, off_t offset) noexcept {
    static const auto next = STASIS_REAL(mmap);
    return file >= 0 && fails("mmap", 0) ? MAP_FAILED
                                         : next(at, size, protection, flags, file, offset);
}
} // extern "C"

#pragma GCC visibility pop
