// Sets of tokens as short strings of bytes: what a setting holds of the tokens that a host allows.
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

// Returns the runs of set bits among the first `count`, from the lowest bit of the first byte on.
TokenRuns runs_of_bits(const void *bits, uint32_t count);

// Returns the bytes of a set of tokens below `vocabulary`.
std::string encode_tokens(const TokenRuns &runs, uint32_t vocabulary);
// Returns the set that these bytes are; nothing if encode_tokens writes no such bytes.
std::optional<TokenRuns> decode_tokens(std::string_view bytes, uint32_t vocabulary);
// Whether decode_tokens would return a set with any token, which takes far less time to tell.
bool is_token_set(std::string_view bytes, uint32_t vocabulary);

// Sets change little from token to token, so each is told by the tokens that only one of it and
// another set has; which are runs again. These take and give bytes that are sets.
TokenRuns difference(std::string_view one, std::string_view other, uint32_t vocabulary);
size_t count_difference(std::string_view one, std::string_view other, uint32_t vocabulary);
// Returns the set that differs from `one` by these runs.
std::string changed_tokens(const std::string &one, const TokenRuns &runs, uint32_t vocabulary);

} // namespace stasis
