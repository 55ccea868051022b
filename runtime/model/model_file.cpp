// Opens, reads and maps a file of a model; see model_file.h.
#include "runtime/model/model_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <limits>

#include "format/state/error.h"

namespace stasis {

ModelFile::ModelFile(const std::string &path) : path_(path) {
    // O_NONBLOCK, so that a named pipe in the directory cannot block opening a model.
    descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor_ < 0) {
        fail(errno == ENOENT || errno == ENOTDIR ? Status::not_found : Status::io,
             "cannot open %s: %s", path.c_str(), std::strerror(errno));
    }
    require_regular();
}

ModelFile::ModelFile(int descriptor) : path_("descriptor " + std::to_string(descriptor)) {
    descriptor_ = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (descriptor_ < 0) {
        fail(errno == EBADF ? Status::invalid_argument : Status::io, "cannot use %s: %s",
             path_.c_str(), std::strerror(errno));
    }
    require_regular();
}

ModelFile::ModelFile(const HostFiles &host, const std::string &name) : path_(name), host_(host) {
    const std::optional<uint64_t> size_bytes = host.size(host.user, name.c_str());
    if (!size_bytes) {
        fail(Status::not_found, "the source has no %s", name.c_str());
    }
    if (*size_bytes > static_cast<uint64_t>(std::numeric_limits<off_t>::max())) {
        fail(Status::io, "%s: the source says that it has %" PRIu64 " bytes", name.c_str(),
             *size_bytes);
    }
    opened_.st_size = static_cast<off_t>(*size_bytes);
}

void ModelFile::require_regular() {
    if (fstat(descriptor_, &opened_) != 0 || !S_ISREG(opened_.st_mode)) {
        close(descriptor_);
        fail(Status::io, "%s is not a regular file", path_.c_str());
    }
}

ModelFile::~ModelFile() {
    if (memory_ != nullptr) {
        munmap(memory_, static_cast<size_t>(size_bytes()));
    }
    if (descriptor_ >= 0) {
        close(descriptor_);
    }
}

void ModelFile::read_host(void *to, size_t size_bytes, uint64_t offset_bytes) const {
    auto *bytes = static_cast<uint8_t *>(to);
    for (size_t done = 0; done < size_bytes;) {
        const uint64_t at = offset_bytes + done;
        const size_t count =
            host_.read(host_.user, path_.c_str(), at, bytes + done, size_bytes - done);
        assert(count > 0 && count <= size_bytes - done);
        done += count;
    }
}

void ModelFile::read(void *to, size_t size_bytes, uint64_t offset_bytes) const {
    if (host_.read != nullptr) {
        read_host(to, size_bytes, offset_bytes);
        return;
    }
    auto *bytes = static_cast<uint8_t *>(to);
    for (size_t done = 0; done < size_bytes;) {
        const uint64_t at = offset_bytes + done;
        const ssize_t count =
            pread(descriptor_, bytes + done, size_bytes - done, static_cast<off_t>(at));
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            fail(Status::io, "cannot read %s beyond byte %" PRIu64 " of %" PRIu64 ": %s",
                 path_.c_str(), at, this->size_bytes(),
                 count < 0 ? std::strerror(errno) : "the file was cut short");
        }
        done += static_cast<size_t>(count);
    }
}

const uint8_t *ModelFile::map() {
    assert(host_.read == nullptr);
    if (memory_ == nullptr) {
        const auto size_bytes = static_cast<size_t>(opened_.st_size);
        void *memory = mmap(nullptr, size_bytes, PROT_READ, MAP_PRIVATE, descriptor_, 0);
        if (memory == MAP_FAILED) {
            fail(errno == ENOMEM ? Status::no_memory : Status::io, "cannot map %s: %s",
                 path_.c_str(), std::strerror(errno));
        }
        memory_ = memory;
        // Requests huge pages for parts not yet in the page cache, if the system supports it:
        // decoding reads all bf16 matrices for each token, and then walks fewer page tables.
        madvise(memory, size_bytes, MADV_HUGEPAGE);
    }
    return static_cast<const uint8_t *>(memory_);
}

const uint8_t *ModelFile::populated(size_t size_bytes, uint64_t offset_bytes) const {
#if defined(MADV_POPULATE_READ)
    if (memory_ != nullptr) {
        auto *bytes = static_cast<uint8_t *>(memory_) + offset_bytes;
        const auto unaligned =
            reinterpret_cast<uintptr_t>(bytes) % static_cast<size_t>(getpagesize());
        if (madvise(bytes - unaligned, size_bytes + unaligned, MADV_POPULATE_READ) == 0) {
            return bytes;
        }
    }
#endif
    return nullptr;
}

void ModelFile::check_unchanged() const {
    if (host_.size != nullptr) {
        if (host_.size(host_.user, path_.c_str()) != size_bytes()) {
            fail(Status::io, "%s has another size than before: the source changed it",
                 path_.c_str());
        }
        return;
    }
    struct stat now {};
    if (fstat(descriptor_, &now) != 0) {
        fail(Status::io, "cannot examine %s: %s", path_.c_str(), std::strerror(errno));
    }
    if (now.st_size != opened_.st_size || now.st_mtim.tv_sec != opened_.st_mtim.tv_sec ||
        now.st_mtim.tv_nsec != opened_.st_mtim.tv_nsec) {
        fail(Status::io, "%s was changed while the model that uses it is open", path_.c_str());
    }
}

void check_unchanged(std::span<const std::shared_ptr<ModelFile>> files) {
    for (const std::shared_ptr<ModelFile> &file : files) {
        file->check_unchanged();
    }
}

} // namespace stasis
