// Text of files and models as a terminal may have it. Knows nothing of where it goes.
#pragma once

#include <string>
#include <string_view>

namespace command {

// The text with everything spelled out that a terminal would obey instead of showing it: control
// characters (\u001b; \n, \r and \t by these names), bidirectional controls, line and paragraph
// separators, and bytes that are not UTF-8 (\x9b). What comes out of a file or model is one line
// then, and looks like what it is. `lines`: line ends and tabs stay.
enum class Lines { spell, keep };
std::string visible(std::string_view text, Lines lines = Lines::spell);

} // namespace command
