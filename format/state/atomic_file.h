// A file that appears under its name whole or not at all: it is written under another name in the
// same directory, locked against a second writer, synced and renamed. Must not know what is
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
    std::string_view suffix;        // of its name until the rename (temporary_name.h)
    std::span<const uint8_t> magic; // its first bytes, 8 at most
    std::optional<mode_t> mode;     // none: 0666 less the process's mask
};

// Removes a file that a killed writer, or a rename cut short by a power loss, has left next to
// `written`, which must be locked. Ignores failures.
void clear_leftover(const File &written, const AtomicKind &kind);

class AtomicFile {
  public:
    // Creates and locks the file, after removing one that a killed writer left under the name.
    // Throws FileError(busy) if another writer of the same path is running, FileError(io).
    AtomicFile(const FileOperations &files, const std::string &path, const AtomicKind &kind,
               bool replace);
    // Removes the file, unless it was committed.
    ~AtomicFile();
    AtomicFile(const AtomicFile &) = delete;
    AtomicFile &operator=(const AtomicFile &) = delete;

    const File &file() const { return file_; }
    // Syncs the file, renames it to `path` and syncs the directory. Throws FileError(io):
    // FileFailure::rename with EEXIST if something is at `path` and `replace` is false,
    // FileFailure::unsynced if the file has been renamed but the last sync failed.
    void commit();

  private:
    bool rename() const;

    std::string path_;
    bool replace_;
    File file_;
    bool committed_ = false;
};

} // namespace stasis
