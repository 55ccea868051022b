// A file that appears under its name whole or not at all: it is written as NAME.writing (or
// a shorter name, format/state/temporary_name.h), in the same folder and locked, then synced and
// renamed. Knows nothing of what is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace stasis {

class NewFile {
  public:
    // What a killed process left under the temporary name is removed first. Error:
    // invalid_argument (something is at `path` and `replace` is false, or it is no GGUF file),
    // busy (another process writes the same file), io.
    NewFile(const std::string &path, bool replace);
    // Removes the file, unless it was committed.
    ~NewFile();
    NewFile(const NewFile &) = delete;
    NewFile &operator=(const NewFile &) = delete;

    // The name that it has until it is committed.
    const std::string &written() const { return written_; }

    // Both throw Error(io), a full disk's text included.
    void write(const void *data, size_t size_bytes, uint64_t offset) const;
    void set_size(uint64_t size_bytes) const;
    // Syncs the file, gives it its name and syncs the folder. Error(io); invalid_argument where
    // something has appeared under the name meanwhile that is not to be replaced.
    void commit();

  private:
    bool try_create();
    bool rename_written() const;
    void check_target() const;

    std::string path_, written_;
    bool replace_;
    int descriptor_ = -1;
    bool committed_ = false;
};

} // namespace stasis
