// What a file is called until it is whole. Knows nothing of what is written to it.
#pragma once

#include <string>
#include <string_view>

namespace stasis {

// The path with `suffix`, in the same folder. Where that would be too long for a file system, the
// name is cut and the first 16 digits of its SHA-256 follow, so that one path has one such name and
// others have others.
std::string temporary_name(const std::string &path, std::string_view suffix);

} // namespace stasis
