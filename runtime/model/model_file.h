// One file of a model. It is read by calls, which fail if the file is cut short meanwhile. It is
// mapped only for weights that are computed with in place, which are then read in place as well; a
// mapped file that is cut short while its bytes are in use raises SIGBUS. Knows nothing of its
// contents.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace stasis {

class ModelFile {
  public:
    // Opens the file. Throws Error: not_found, io (for example not a regular file).
    explicit ModelFile(const std::string &path);
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
    std::string path_;
    int descriptor_; // kept open, so that checks examine this file even if another has its name
    struct stat opened_ {};
    void *memory_ = nullptr; // null: not mapped
};

// Throws Error(io) unless ModelFile::check_unchanged finds every one of them as it was.
void check_unchanged(std::span<const std::shared_ptr<ModelFile>> files);

} // namespace stasis
