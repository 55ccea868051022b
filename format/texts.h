// The section of token texts: what each token of the log spells (FORMAT.md, "Token texts").
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace stasis::format {

using TokenTexts = std::vector<std::pair<uint32_t, std::string>>; // ascending by token

std::vector<uint8_t> encode_texts(const TokenTexts &texts);
// Throws Error(corrupt) where a text does not end inside the section.
TokenTexts decode_texts(const std::vector<uint8_t> &bytes);

// The text of a token; empty if it is not there.
const std::string &token_text(const TokenTexts &texts, uint32_t token);

} // namespace stasis::format
