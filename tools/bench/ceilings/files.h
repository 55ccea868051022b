// How fast files are written and read, by plain calls of the system: a new one, one that grows, one
// that is hashed as it is read.
#pragma once

#include <cstddef>
#include <string>

namespace command::ceilings {

inline constexpr size_t kFileBytes = 128 << 20;

struct FileRates {
    double write, read; // bytes per second; written with fsync
};
// A temporary file in `folder`, made of kFileBytes at `data`, gone at the end. Throws Failure.
FileRates measure_files(const std::string &folder, char *data);

// Writes a new file of `bytes` bytes (from `data`, which has kHeldBytes), syncs it, renames it onto
// the last one of its kind and syncs the folder.
double write_new_seconds(const std::string &folder, const char *data, size_t bytes);

// Reads the file into `memory` (kHeldBytes) and takes its SHA-256, each thread its own share in
// pieces that stay in its cache.
double read_and_hash_seconds(const std::string &path, char *memory, unsigned threads);

// An open file or folder; what fails throws Failure.
struct Opened {
    int descriptor;
    std::string path;

    Opened(const std::string &name, int flags);
    ~Opened();
    Opened(const Opened &) = delete;
    Opened &operator=(const Opened &) = delete;
    [[noreturn]] void fail() const;
    void sync() const;
    size_t size() const;
};

// A file that `bytes` bytes are appended to, with the syncs of a commit: the bytes, file and
// folder; then a block near its beginning, and the file again.
class GrowingFile {
  public:
    GrowingFile(const std::string &folder, const char *data, size_t bytes);
    double append_seconds() const;

  private:
    const char *data_;
    size_t bytes_;
    Opened file_, folder_;
};

} // namespace command::ceilings
