// A read-only mapping of one file of weights. Knows nothing of what is inside.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace stasis {

// Throws Error: not_found, io (not a regular file among others), no_memory.
class Mapping {
  public:
    explicit Mapping(const std::string &path);
    ~Mapping();
    Mapping(const Mapping &) = delete;
    Mapping &operator=(const Mapping &) = delete;

    // Throws Error(io) if the file was written to or cut short since it was opened.
    void check_unchanged() const;
    // The process lets go of the pages that it read; they come back when they are looked at.
    void forget() const;
    const uint8_t *data() const { return static_cast<const uint8_t *>(memory_); }
    size_t size_bytes() const { return static_cast<size_t>(opened_.st_size); }

  private:
    void map();

    std::string path_;
    int descriptor_; // kept, so that a check asks about this file, whatever now has its name
    struct stat opened_ {};
    void *memory_ = nullptr; // null: an empty file
};

} // namespace stasis
