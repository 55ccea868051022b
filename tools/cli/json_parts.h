// The parts of a JSON text as the library writes it, one at a time and as text: what a snapshot
// says may be too long for a tree of all of it.
#pragma once

#include <functional>
#include <string_view>

namespace command {

// Called with the members of an object in their order, `key` without its quotes, or with the items
// of an array, `key` empty.
using Part = std::function<void(std::string_view key, std::string_view value)>;
void for_each_part(std::string_view json, const Part &part);

// The value of a member; "" if there is none.
std::string_view member(std::string_view object, std::string_view key);

} // namespace command
