// The file that a save goes to, as it stands there: locked against every other saver (FORMAT.md,
// "Saving"). Knows nothing of its contents.
#pragma once

#include <optional>
#include <string>

#include "format/state/file.h"

namespace stasis::format {

// Opens the file at `path` for reading and writing and locks it; nothing if there is none. Never
// follows a link. Error(invalid_argument): not a regular file; Error(busy): another save of it is
// running; Error(io).
std::optional<File> lock_existing(const FileOperations &files, const std::string &path);

} // namespace stasis::format
