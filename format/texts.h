// Texts of tokens: those in a file that belong to a log, and the text of one token. Must not know
// files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "format/state/state.h"

namespace stasis::format {

using TokenTexts = std::vector<std::pair<uint32_t, std::string>>;

// Returns the texts of tokens that are in the log, from a file's list, ascending by token. Throws
// Error(corrupt) for a token that is listed twice or is outside the vocabulary.
TokenTexts texts_of_log(const TokenTexts &texts, const std::vector<TokenEntry> &log,
                        uint32_t vocabulary);

// Returns the list of texts that the next commit stores: the file's own, then those of `wanted`
// (ascending by token) that it lacks, in the order in which the log first uses them. The list
// begins anew if the file has another text for a token.
TokenTexts continued_texts(std::span<const TokenTexts::value_type> old, const TokenTexts &wanted,
                           const std::vector<TokenEntry> &log);

// Returns the text of a token from a list that ascends by token; empty if the list lacks it.
const std::string &token_text(const TokenTexts &texts, uint32_t token);

} // namespace stasis::format
