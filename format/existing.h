// The file that a save goes to, locked against every other save (FORMAT.md, "Saving"). Must not
// know its contents.
#pragma once

#include <optional>
#include <string>

#include "format/state/file.h"

namespace stasis::format {

// Opens the file at `path` for reading and writing and locks it; returns nothing if there is none.
// Never follows a link. Throws Error(invalid_argument) if it is not a regular file, Error(busy) if
// another save of it is running, Error(io).
std::optional<File> lock_existing(const FileOperations &files, const std::string &path);

} // namespace stasis::format
