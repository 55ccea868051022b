// One file of a model: of the system, or of a host, whose functions read it. It is read by calls,
// which fail if the file is cut short meanwhile. It is mapped only for weights that are computed
// with in place, which are then read in place as well; a mapped file that is cut short while its
// bytes are in use raises SIGBUS. Knows nothing of its contents.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace stasis {

// Functions of a host that give the files of a model by their names. They are called by the thread
// that opens the model, and throw Error.
struct HostFiles {
    void *user = nullptr;
    // Returns the size of a file; nothing: there is none of this name.
    std::optional<uint64_t> (*size)(void *user, const char *name) = nullptr;
    // Reads up to `size_bytes` from the offset on, and returns how many, at least one.
    size_t (*read)(void *user, const char *name, uint64_t offset_bytes, void *to,
                   size_t size_bytes) = nullptr;
};

class ModelFile {
  public:
    // Opens the file. Throws Error: not_found, io (for example not a regular file).
    explicit ModelFile(const std::string &path);
    // Takes a file that is open for reading: a descriptor of its own refers to the same. Throws
    // Error: invalid_argument (no such descriptor), io.
    explicit ModelFile(int descriptor);
    // A file of a host, which outlives it; cannot be mapped. Throws Error: not_found, io.
    ModelFile(const HostFiles &host, const std::string &name);
    ~ModelFile();
    ModelFile(const ModelFile &) = delete;
    ModelFile &operator=(const ModelFile &) = delete;

    uint64_t size_bytes() const { return static_cast<uint64_t>(opened_.st_size); }
    // Returns what the system said of the file when it was opened.
    const struct stat &status() const { return opened_; }
    // Copies bytes of the file. Thread-safe. Throws Error(io), also if the file ends before.
    void read(void *to, size_t size_bytes, uint64_t offset_bytes) const;
    // Returns the whole file, read-only; maps it at the first call. One thread at a time. Throws
    // Error: io, no_memory.
    const uint8_t *map();
    // Returns part of the mapping once the system has read all of it, which saves a copy of the
    // bytes; null if the file is not mapped, if the system cannot say (Linux before 5.14), or if
    // reading failed: `read` then says why. Thread-safe.
    const uint8_t *populated(size_t size_bytes, uint64_t offset_bytes) const;
    bool mapped() const { return memory_ != nullptr; }
    // Throws Error(io) if the file was written to or cut short since it was opened. A file that was
    // deleted or replaced under its name remains complete.
    void check_unchanged() const;

  private:
    void read_host(void *to, size_t size_bytes, uint64_t offset_bytes) const;
    void require_regular();

    std::string path_; // or the name for messages
    HostFiles host_;   // without functions: a file of the system
    // Kept open, so that checks examine this file even if another has its name; -1: of a host.
    int descriptor_ = -1;
    struct stat opened_ {};
    void *memory_ = nullptr; // null: not mapped
};

// Throws Error(io) unless ModelFile::check_unchanged finds every one of them as it was.
void check_unchanged(std::span<const std::shared_ptr<ModelFile>> files);

} // namespace stasis
