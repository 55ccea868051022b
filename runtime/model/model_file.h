// One file of a model: read by calls, which a file cut short under way makes fail, and mapped only
// where weights are computed with in place, where it raises SIGBUS. Knows nothing of what is
// inside.
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
    // Opens it. Throws Error: not_found, io (not a regular file among others).
    explicit ModelFile(const std::string &path);
    ~ModelFile();
    ModelFile(const ModelFile &) = delete;
    ModelFile &operator=(const ModelFile &) = delete;

    uint64_t size_bytes() const { return static_cast<uint64_t>(opened_.st_size); }
    // Copies bytes of the file, from any thread. Throws Error(io), also where the file ends before.
    void read(void *to, size_t size_bytes, uint64_t offset_bytes) const;
    // The whole file, read-only, from the first call on, for one thread. Throws Error: io,
    // no_memory.
    const uint8_t *map();
    bool mapped() const { return memory_ != nullptr; }
    // Throws Error(io) if the file was written to or cut short since it was opened. (One that was
    // deleted or replaced under its name is still there in full.)
    void check_unchanged() const;

  private:
    std::string path_;
    int descriptor_; // kept, so that a check asks about this file, whatever now has its name
    struct stat opened_ {};
    void *memory_ = nullptr; // null: not mapped
};

// Throws Error(io) unless ModelFile::check_unchanged finds every one of them as it was.
void check_unchanged(std::span<const std::shared_ptr<ModelFile>> files);

} // namespace stasis
