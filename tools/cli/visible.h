// Text of files and models in a form that is safe on a terminal. Must not know where it is written.
#pragma once

#include <string>
#include <string_view>

namespace command {

// Returns the text with every character spelled out that a terminal would obey instead of showing
// it: control characters (\u001b; \n, \r and \t by these names), bidirectional controls, line and
// paragraph separators, and bytes that are not UTF-8 (\x9b). The result is one line that looks like
// what it is. Lines::keep: line ends and tabs stay.
enum class Lines { spell, keep };
std::string visible(std::string_view text, Lines lines = Lines::spell);

} // namespace command
