// Texts of tokens: which of those in a file belong to a log, and which one a token has.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "format/state/state.h"

namespace stasis::format {

using TokenTexts = std::vector<std::pair<uint32_t, std::string>>;

// Of a file's list of texts, those of tokens that are in the log, ascending by token.
// Error(corrupt) for a token that is there twice or outside the vocabulary.
TokenTexts texts_of_log(const TokenTexts &texts, const std::vector<TokenEntry> &log,
                        uint32_t vocabulary);

// The list with which a file goes on: its own, then those of `wanted` (ascending by token) that it
// does not have yet, in the order in which the log first uses them. Anew, if it has another text
// for a token.
TokenTexts continued_texts(std::span<const TokenTexts::value_type> old, const TokenTexts &wanted,
                           const std::vector<TokenEntry> &log);

// The text of a token in a list that ascends by token; empty if it is not there.
const std::string &token_text(const TokenTexts &texts, uint32_t token);

} // namespace stasis::format
