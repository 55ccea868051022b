// The parts of a JSON text of the library, one at a time and as text: an element of a snapshot may
// be too long for a tree of all of it. The text must be valid JSON.
#pragma once

#include <functional>
#include <string_view>

namespace command {

// Called with the members of an object in their order, `key` without its quotes, or with the items
// of an array, `key` empty.
using Part = std::function<void(std::string_view key, std::string_view value)>;
void for_each_part(std::string_view json, const Part &part);

// Returns the value of a member; "" if the object lacks it.
std::string_view member(std::string_view object, std::string_view key);

} // namespace command
