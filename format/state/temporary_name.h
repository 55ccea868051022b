// The name of a file until it is complete. Must not know what is written to it.
#pragma once

#include <string>
#include <string_view>

namespace stasis {

// Returns the path with `suffix`, in the same directory. If that would be too long for a file
// system, the name is cut and the first 16 digits of its SHA-256 follow, so that one path always
// has the same such name and different paths have different ones.
std::string temporary_name(const std::string &path, std::string_view suffix);

} // namespace stasis
