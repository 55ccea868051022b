// See mapping.h.
#include "runtime/checkpoint/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "format/error.h"

namespace stasis {

Mapping::Mapping(const std::string &path) : path_(path) {
    // Non-blocking, so that a named pipe in the directory cannot make opening a model wait.
    descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor_ < 0) {
        fail(errno == ENOENT || errno == ENOTDIR ? Status::not_found : Status::io,
             "cannot open %s: %s", path.c_str(), std::strerror(errno));
    }
    try {
        map();
    } catch (...) {
        close(descriptor_);
        throw;
    }
}

Mapping::~Mapping() {
    if (memory_ != nullptr) {
        munmap(memory_, size_bytes());
    }
    close(descriptor_);
}

void Mapping::map() {
    if (fstat(descriptor_, &opened_) != 0 || !S_ISREG(opened_.st_mode)) {
        fail(Status::io, "%s is not a regular file", path_.c_str());
    }
    if (opened_.st_size == 0) {
        return;
    }
    void *memory = mmap(nullptr, size_bytes(), PROT_READ, MAP_PRIVATE, descriptor_, 0);
    if (memory == MAP_FAILED) {
        fail(errno == ENOMEM ? Status::no_memory : Status::io, "cannot map %s: %s", path_.c_str(),
             std::strerror(errno));
    }
    memory_ = memory;
    // Read into the page cache on huge pages, where the file is not there yet and the system can:
    // decoding reads all bf16 matrices for each token, and walks fewer page tables.
    madvise(memory, size_bytes(), MADV_HUGEPAGE);
}

void Mapping::forget() const {
    if (memory_ != nullptr) {
        madvise(memory_, size_bytes(), MADV_DONTNEED);
    }
}

void Mapping::check_unchanged() const {
    struct stat now {};
    if (fstat(descriptor_, &now) != 0) {
        fail(Status::io, "cannot examine %s: %s", path_.c_str(), std::strerror(errno));
    }
    if (now.st_size != opened_.st_size || now.st_mtim.tv_sec != opened_.st_mtim.tv_sec ||
        now.st_mtim.tv_nsec != opened_.st_mtim.tv_nsec) {
        fail(Status::io, "%s was changed while the model that maps it is open", path_.c_str());
    }
}

} // namespace stasis
