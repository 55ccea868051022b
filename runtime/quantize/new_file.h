// Creates the GGUF file that quantizing writes: defines which files it may replace, and its error
// messages. Knows nothing of the contents.
#pragma once

#include <functional>
#include <string>

#include "format/state/file.h"

namespace stasis {

// Calls `write` to fill a file that then appears at `path` whole, or not at all. Until then it is
// called PATH.writing (format/state/atomic_file.h). Throws Error(invalid_argument) if a file is at
// `path` and `replace` is false or it is no GGUF file, Error(busy) if another process writes the
// same file, Error(io), and the errors of `write`.
void write_new_file(const std::string &path, bool replace,
                    const std::function<void(const File &file)> &write,
                    const FileOperations &files = system_files());

} // namespace stasis
