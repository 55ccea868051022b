// Reads JSON files of a model directory with a size limit, and parses them strictly. Knows nothing
// of their meaning.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "runtime/model/json.h"

namespace stasis {

// Reports whether a file exists. Throws Error(io) if the system cannot determine it, because a
// missed file would change the model that a directory describes.
bool file_exists(const std::string &path);

// Returns the bytes of a regular file. Throws Error: not_found, io, corrupt (longer than the
// limit).
std::string read_text(const std::string &path, size_t size_limit_bytes);

// Parses `text`, whose name for messages is `file`. Throws Error(corrupt): not JSON, not an object,
// a key given twice (readers disagree on which one counts), nested deeper than 16.
Json parse_json(std::string_view text, const std::string &file);

} // namespace stasis
