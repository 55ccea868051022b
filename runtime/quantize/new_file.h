// The GGUF file that quantizing writes: what it may replace, and how its failures are told. Knows
// nothing of what is written.
#pragma once

#include <functional>
#include <string>

#include "format/state/file.h"

namespace stasis {

// Has `write` fill a file that then appears at `path` whole, or not at all: until then it is
// called PATH.writing (format/state/atomic_file.h). Throws Error: invalid_argument (something is at
// `path` and `replace` is false, or it is no GGUF file), busy (another process writes the same
// file), io, and what `write` throws.
void write_new_file(const std::string &path, bool replace,
                    const std::function<void(const File &file)> &write,
                    const FileOperations &files = system_files());

} // namespace stasis
