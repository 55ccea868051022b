// JSON files of a model directory: reading them with a size limit and parsing them strictly.
// Knows nothing of what the files mean.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "runtime/model/json.h"

namespace stasis {

// Whether there is something at the path. Throws Error(io) where the system cannot tell: a file
// that is there but was missed would make another model of a directory.
bool file_exists(const std::string &path);

// The bytes of a regular file. Throws Error: not_found, io, corrupt (longer than the limit).
std::string read_text(const std::string &path, size_t size_limit_bytes);

// Parses `text`, whose name for messages is `file`. Throws Error(corrupt): not JSON, not an object,
// a key given twice (readers disagree about which one counts), nested deeper than 16.
Json parse_json(std::string_view text, const std::string &file);

} // namespace stasis
