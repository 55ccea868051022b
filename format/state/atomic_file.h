// A file that appears under its name whole or not at all: it is written under another name in the
// same directory, locked against a second writer, then synced and renamed. Knows nothing of what is
// written.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "format/state/file.h"

namespace stasis {

struct AtomicKind {
    std::string_view suffix;        // of its name until it is whole (temporary_name.h)
    std::span<const uint8_t> magic; // its first bytes, 8 at most
    std::optional<mode_t> mode;     // none: what the process's mask leaves of 0666
};

// Removes what a killed writer, or a rename cut short by a power loss, has left beside a file that
// is there and locked, if it can.
void clear_leftover(const File &written, const AtomicKind &kind);

class AtomicFile {
  public:
    // Creates and locks it. What a killed writer left under the name is removed first. Throws
    // FileError(busy) if another writer of the same path is running, FileError(io).
    AtomicFile(const FileOperations &files, const std::string &path, const AtomicKind &kind,
               bool replace);
    // Removes the file, unless it was committed.
    ~AtomicFile();
    AtomicFile(const AtomicFile &) = delete;
    AtomicFile &operator=(const AtomicFile &) = delete;

    const File &file() const { return file_; }
    // fsync, rename to `path`, fsync of the directory. Throws FileError(io); unless it is to
    // replace, FileFailure::rename with EEXIST where something is at `path`. Once renamed, only the
    // last step can fail: FileFailure::unsynced.
    void commit();

  private:
    bool rename() const;

    std::string path_;
    bool replace_;
    File file_;
    bool committed_ = false;
};

} // namespace stasis
