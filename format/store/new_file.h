// A file of a store that is being written: under a name of its own in a folder for such files,
// locked, until it is placed under the name of what it holds. Many may be written at once, also for
// one name (AtomicFile has one writer for each). Must not know keys.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "format/state/file.h"

namespace stasis::format {

class NewFile {
  public:
    // Creates the file in `folder`, mode 0600, and locks it. Throws Error(io), as all functions.
    NewFile(const FileOperations &files, const std::string &folder);
    // Removes it, unless it was placed.
    ~NewFile();
    NewFile(const NewFile &) = delete;
    NewFile &operator=(const NewFile &) = delete;

    void write(std::span<const uint8_t> bytes) const; // and syncs it
    // Gives it another name, in the same file system; that folder must be synced then. False: there
    // is something of this name, which stays.
    bool place_new(const std::string &path);
    void place(const std::string &path); // in the place of what is there

  private:
    File file_;
    bool placed_ = false;
};

// Removes files in `folder` that no writer has locked: their writers were killed. Ignores failures,
// for such files do no harm but take space.
void remove_leftovers(const FileOperations &files, const std::string &folder);

} // namespace stasis::format
