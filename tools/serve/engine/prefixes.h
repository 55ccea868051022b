// Names of beginnings: by them a prompt finds a stored session that begins with the same tokens.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "abi/stasis.h"

namespace serve {

// Returns 64 hexadecimal digits.
std::string sha256(const std::string &text);

// Returns a name for each beginning of the tokens whose length is in the row 256, 384, 576, ...
// (each half as long again as the one before), the shortest first. Names depend on the model, whose
// identity is given, and on all tokens of the beginning.
std::vector<std::string> prefix_names(const std::string &identity,
                                      std::span<const stasis_token> tokens);

} // namespace serve
