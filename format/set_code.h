// The bits in which a file stores runs of tokens: lengths in a Rice code, which for sets drawn at
// random, of any density, is close to the shortest there is, and never longer than a bit for each
// token and three bytes (FORMAT.md, "Settings with sets"). Must not know files.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "format/state/token_set.h"

namespace stasis::format {

// Returns the code of runs, of which there is at least one.
std::vector<uint8_t> encode_runs(const TokenRuns &runs);

// Calls visit with each of `count` edges of runs of tokens below `vocabulary`. Returns false if
// the code is not of exactly these.
bool visit_runs(std::span<const uint8_t> code, uint32_t count, uint32_t vocabulary,
                const std::function<void(uint32_t edge)> &visit);
// Returns them; none if the code is not of exactly these. Uses memory in proportion to the code.
TokenRuns decode_runs(std::span<const uint8_t> code, uint32_t count, uint32_t vocabulary);

} // namespace stasis::format
