// Sets of tokens as short strings of bytes: what a setting stores of the tokens that a host allows.
// Each set has one such string (FORMAT.md, "Sets of tokens"). Time and memory for reading one are
// in proportion to the string, whatever vocabulary a file claims to have.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stasis {

// Begin and end of each run of tokens that are in the set; ascending, no two touch.
using TokenRuns = std::vector<uint32_t>;

// Returns the bytes of a set of tokens below `vocabulary`.
std::string encode_tokens(const TokenRuns &runs, uint32_t vocabulary);
// Returns the set that these bytes are; nothing if encode_tokens writes no such bytes.
std::optional<TokenRuns> decode_tokens(std::string_view bytes, uint32_t vocabulary);

} // namespace stasis
