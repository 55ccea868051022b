// The file that a save writes whole before it appears or takes the place of an old one:
// PATH.saving (or a shorter name, temporary_name.h), in the same directory, locked against a second
// saver (FORMAT.md, "Saving"). Knows nothing of what is written.
#pragma once

#include <string>

#include "format/file.h"

namespace stasis::format {

// Removes what a killed save, or a rename cut short by a power loss, has left beside a file that is
// there and locked, if it can.
void clear_leftover(const File &saved);

class Temporary {
  public:
    // Creates it, mode 0600, and locks it. What a killed save left under the name is removed first.
    // Error(busy) if another save of the same path is running, Error(io).
    Temporary(const FileOperations &files, const std::string &path);
    // Removes the file, unless it was committed.
    ~Temporary();
    Temporary(const Temporary &) = delete;
    Temporary &operator=(const Temporary &) = delete;

    const File &file() const { return file_; }
    // fsync, rename to `path`, fsync of the directory. Error(io); once renamed, only the last step
    // can fail, and its message says that the new file is in place, but may not survive a power
    // loss.
    void commit();

  private:
    std::string path_;
    File file_;
    bool committed_ = false;
};

} // namespace stasis::format
